"""Messages between releases: what is left out, passed over, refused, and which protocol is needed."""

from __future__ import annotations

import inspect
from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from common import protocol
from common.messages import Message, Report, Since, protocol_of
from common.protocol import ContainerSpec, ContainerState, ContainerStatus, Heartbeat, HeartbeatReply
from tests.fakes.heartbeats import beat

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


def test_what_is_at_its_default_is_left_out() -> None:
    assert Asked(id="a", parts=[Part(path="/b")]).written() == '{"id":"a","parts":[{"path":"/b"}]}'
    assert HeartbeatReply().written() == "{}"


@pytest.mark.parametrize("kind", [kind for _, kind in inspect.getmembers(protocol, inspect.isclass)])
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


def test_a_request_of_a_later_release_is_refused_not_done_in_part() -> None:
    spec = ContainerSpec(id="c", session_id="s", session_name="n", project="p", user="u", image="i")
    with pytest.raises(ValidationError, match="isolated"):
        ContainerSpec.model_validate_json(spec.written()[:-1] + ',"isolated":true}')
    with pytest.raises(ValidationError, match="isolated"):
        ContainerSpec.model_validate({**spec.model_dump(), "mounts": [{"source": "/a", "target": "/b", "isolated": 1}]})
