"""Messages between releases: what is left out, passed over, refused, and which protocol is needed."""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Annotated, Any, get_args

import pytest
from pydantic import Field, ValidationError

from common import (
    app_protocol,
    audit_protocol,
    backup_protocol,
    check_protocol,
    denied_call_protocol,
    protocol,
    repair_protocol,
    storage_protocol,
)
from common.backup_protocol import BackupAction
from common.gpu.kinds import Enforcement
from common.messages import Message, Report, Since, protocol_of
from common.protocol import ContainerSpec, ContainerState, ContainerStatus, Heartbeat, HeartbeatReply, ImageState
from tests.fakes.heartbeats import beat

PROTOCOLS = (
    *(app_protocol, audit_protocol, backup_protocol, check_protocol, denied_call_protocol),
    *(protocol, repair_protocol, storage_protocol),
)
KINDS = sorted(
    {kind for module in PROTOCOLS for _, kind in inspect.getmembers(module, inspect.isclass)},
    key=lambda kind: kind.__name__,
)
ASKED = {"ContainerSpec", "GangNetwork", "GpuShares", "ImageRequest", "Mount"}


class Part(Message):
    path: str
    sealed: Annotated[bool, Since(3)] = False


class Asked(Message):
    id: str
    hidden: Annotated[str, Since(2)] = ""
    first: Part = Part(path="/")
    parts: list[Part] = Field(default_factory=list)
    kept: Annotated[Part | None, Since(2)] = None


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        (Asked(id="a"), 0),
        (Asked(id="a", hidden="", parts=[]), 0),
        (Asked(id="a", hidden="x"), 2),
        (Asked(id="a", parts=[Part(path="/a")]), 0),
        (Asked(id="a", parts=[Part(path="/a"), Part(path="/b", sealed=True)]), 3),
        (Asked(id="a", first=Part(path="/a", sealed=True)), 3),
        (Asked(id="a", kept=Part(path="/a")), 2),
    ],
)
def test_a_request_needs_the_protocol_of_the_newest_that_it_asks_for(asked: Asked, needed: int) -> None:
    assert protocol_of(asked) == needed


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, Message)])
def test_agents_of_this_release_know_all_that_is_asked_for(kind: type[Message]) -> None:
    marks = {name: mark for name, field in kind.model_fields.items() for mark in field.metadata}
    later = [name for name, mark in marks.items() if isinstance(mark, Since) and mark.protocol > protocol.PROTOCOL]
    assert later == []


def test_what_is_at_its_default_is_left_out() -> None:
    assert Asked(id="a", parts=[Part(path="/b")]).written() == '{"id":"a","parts":[{"path":"/b"}]}'
    assert HeartbeatReply().written() == "{}"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_told_may_have_new_keys_and_what_is_asked_for_may_not(kind: type) -> None:
    if issubclass(kind, Message):
        assert issubclass(kind, Report) == (kind.__name__ not in {*ASKED, "Message"})


def test_a_heartbeat_of_a_later_release_is_read() -> None:
    told = beat(1, containers=[ContainerState(id="c", session_id="s", status=ContainerStatus.RUNNING)]).model_dump(
        mode="json"
    )
    later = told | {"mood": "good", "node_info": told["node_info"] | {"colour": "red"}}
    later["containers"] = [told["containers"][0] | {"age": 3}]
    assert Heartbeat.model_validate(later) == Heartbeat.model_validate(told)


def kinds(annotation: Any) -> set[type[Enum]]:
    """Return the enumerations that a field has values of."""
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return {annotation}
    return {kind for part in get_args(annotation) for kind in kinds(part)}


def chosen(base: type[Message]) -> list[tuple[type[Message], str]]:
    """Return the fields of messages that have values of an enumeration."""
    found = [kind for kind in KINDS if issubclass(kind, base)]
    return [(kind, name) for kind in found for name, field in kind.model_fields.items() if kinds(field.annotation)]


# an action is told, and is an order: what nobody here knows how to do is not done as something else
REPORTED = [
    (kind, name) for kind, name in chosen(Report) if kinds(kind.model_fields[name].annotation) != {BackupAction}
]


def refused(kind: type[Message], field: str) -> bool:
    """Return whether a message is refused for a value of a field that a later release may have added."""
    try:
        kind.model_validate_json(f'{{"{field}": "new"}}')
    except ValidationError as error:
        return any(each["loc"][0] == field for each in error.errors())
    return False


def test_every_kind_of_value_is_looked_at() -> None:
    told = {(kind.__name__, field) for kind, field in REPORTED}
    assert told >= {
        ("ContainerState", "enforcement"),
        ("ContainerState", "status"),
        ("GpuDevice", "enforcement"),
        ("ImageState", "status"),
        ("NodeInfo", "enforcement"),
        ("RunReport", "state"),
        ("BackupOrderReport", "state"),
    }


@pytest.mark.parametrize(("kind", "field"), REPORTED)
def test_a_value_that_a_later_release_added_is_read_in_what_is_told(kind: type[Message], field: str) -> None:
    assert not refused(kind, field)


@pytest.mark.parametrize(("kind", "field"), sorted(set(chosen(Message)) - set(REPORTED), key=str))
def test_a_value_that_a_later_release_added_is_refused_in_what_is_asked_for(kind: type[Message], field: str) -> None:
    assert refused(kind, field)


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ({}, "creating"),
        ({"started_at": "2026-11-22T10:00:00Z"}, "creating"),
        ({"exit_code": 0}, "exited"),
        ({"exit_code": 3, "error": "frozen"}, "exited"),
        ({"error": "frozen", "finished_at": "2026-11-22T10:00:00Z"}, "failed"),
    ],
)
def test_a_container_in_a_state_of_a_later_release_is_on_its_way_or_at_its_end(
    told: dict[str, Any], status: str
) -> None:
    state = ContainerState.model_validate({"id": "c", "session_id": "s", "status": "frozen", **told})
    assert state.status == status


def test_what_holds_shares_in_a_later_release_promises_nothing() -> None:
    info = beat(1).node_info.model_dump(mode="json")
    info["gpus"][0]["enforcement"] = info["enforcement"] = "confidential"
    read = protocol.NodeInfo.model_validate(info)
    assert (read.enforcement, read.gpus[0].enforcement) == (Enforcement.NONE, Enforcement.NONE)


def test_an_image_in_a_state_of_a_later_release_is_not_there_yet() -> None:
    assert ImageState.model_validate({"reference": "a", "status": "unpacking"}).status == "pulling"


@pytest.mark.parametrize("status", [None, 3, ["running"]])
def test_what_is_no_word_is_no_state(status: object) -> None:
    with pytest.raises(ValidationError):
        ContainerState.model_validate({"id": "c", "session_id": "s", "status": status})


def test_a_request_of_a_later_release_is_refused_not_done_in_part() -> None:
    spec = ContainerSpec(id="c", session_id="s", session_name="n", project="p", user="u", image="i")
    with pytest.raises(ValidationError, match="isolated"):
        ContainerSpec.model_validate_json(spec.written()[:-1] + ',"isolated":true}')
    with pytest.raises(ValidationError, match="isolated"):
        ContainerSpec.model_validate({**spec.model_dump(), "mounts": [{"source": "/a", "target": "/b", "isolated": 1}]})
