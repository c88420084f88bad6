"""From Docker's answer to `inspect` to what is known of a container."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from appliance.agent import labels
from appliance.agent.docker import containers, inspections
from appliance.agent.docker.cores import NO_CORES, CoreGrant
from appliance.agent.labels import digest_of
from common.gpu.kinds import Enforcement
from common.gpu.share import GpuShare
from common.protocol import ContainerStatus
from tests.unit.appliance.agent.samples import gpu_share, make

INSPECTION: dict[str, Any] = {
    "Name": "/penstock-c1",
    "Config": {
        "Labels": {
            "io.penstock.id": "c1",
            "io.penstock.session": "s1",
            "io.penstock.gpus": '[{"uuid": "SIM-1", "index": 1, "milli": 500}]',
            "io.penstock.spec": "abc",
        }
    },
    "HostConfig": {"Memory": 64 << 20},
    "State": {
        "Status": "running",
        "Error": "",
        "ExitCode": 0,
        "OOMKilled": False,
        "StartedAt": "2026-01-02T03:04:05.123456789Z",
        "FinishedAt": "0001-01-01T00:00:00Z",
    },
}


def inspection(**state: Any) -> dict[str, Any]:
    changed = copy.deepcopy(INSPECTION)
    changed["State"].update(state)
    return changed


def test_labels_bring_back_cores_and_ports() -> None:
    found = inspection()
    values = inspections.label_values(found)
    assert (values.granted, values.ports) == (NO_CORES, []), "made by an older agent"
    created = containers.creation(make(cpu_milli=1500, ports=[8888, 80]), CoreGrant((0, 5), 1500))
    found["Config"]["Labels"] = created["labels"]
    values = inspections.label_values(found)
    assert (values.granted, values.ports) == (CoreGrant((0, 5), 1500), [8888, 80])


def test_the_address_is_that_of_the_docker_network() -> None:
    found = inspection()
    found["NetworkSettings"] = {"Networks": {"none": {"IPAddress": ""}, "bridge": {"IPAddress": "172.17.0.9"}}}
    assert inspections.address_of(found) == "172.17.0.9"
    found["NetworkSettings"] = {"Networks": {"bridge": {"IPAddress": ""}}}
    assert inspections.address_of(found) == ""


def test_labels_bring_back_how_shares_are_held() -> None:
    found = inspection()
    assert inspections.state_of(found).enforcement is Enforcement.NONE, "made by an older agent"
    shared = make(gpus=[gpu_share("SIM-1", 500)])
    found["Config"]["Labels"] = containers.creation(shared, kind=Enforcement.SHIM)["labels"]
    assert inspections.state_of(found).enforcement is Enforcement.SHIM
    found["Config"]["Labels"] = containers.creation(make())["labels"]
    assert inspections.state_of(found).enforcement is None


def test_labels_bring_back_the_state() -> None:
    created = containers.creation(make(gpus=[gpu_share("SIM-1", 500, index=1)]))
    found = inspection()
    found["Config"]["Labels"] = created["labels"]
    state = inspections.state_of(found)
    assert (state.id, state.session_id) == ("c1", "s1")
    assert state.gpus == [GpuShare(uuid="SIM-1", index=1, milli=500)]
    assert inspections.label_values(found).digest == digest_of(make(gpus=[gpu_share("SIM-1", 500, index=1)]))


@pytest.mark.parametrize(
    ("docker_status", "status"),
    [
        ("created", ContainerStatus.CREATING),
        ("running", ContainerStatus.RUNNING),
        ("paused", ContainerStatus.RUNNING),
        ("restarting", ContainerStatus.RUNNING),
        ("removing", ContainerStatus.EXITED),
        ("exited", ContainerStatus.EXITED),
        ("dead", ContainerStatus.EXITED),
    ],
)
def test_every_status_of_docker_has_its_meaning(docker_status: str, status: ContainerStatus) -> None:
    assert inspections.state_of(inspection(Status=docker_status)).status is status


def test_running_container_has_a_start_and_no_end() -> None:
    state = inspections.state_of(inspection())
    assert state.started_at == datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)
    assert state.finished_at is None
    assert state.exit_code is None


def test_container_that_docker_could_not_start_has_failed() -> None:
    state = inspections.state_of(inspection(Status="created", Error="no such device", ExitCode=128))
    assert (state.status, state.error, state.exit_code) == (ContainerStatus.FAILED, "no such device", 128)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"ExitCode": 0}, ""),
        ({"ExitCode": 1}, ""),
        ({"ExitCode": 127}, "exit code 127: the command is not in the image; see the log"),
        ({"ExitCode": 137, "OOMKilled": True}, "out of memory: the limit is 64 MiB"),
        ({"ExitCode": 137}, "exit code 137: the program was killed (signal 9); if it ran out of memory, ask for more"),
    ],
)
def test_exited_container_says_why_where_docker_knows(changes: dict[str, Any], error: str) -> None:
    state = inspections.state_of(inspection(Status="exited", **changes))
    assert (state.exit_code, state.error) == (changes["ExitCode"], error)


@pytest.mark.parametrize("label", ["gpus", "enforcement", "cores", "cpu-milli", "ports", "network"])
def test_of_labels_that_nobody_can_read_the_session_alone_is_believed(label: str) -> None:
    found = inspection(Status="running")
    created = containers.creation(make(ports=[80], gpus=[gpu_share("SIM-1", 500)]), kind=Enforcement.SHIM)
    found["Config"]["Labels"] = created["labels"] | {f"io.penstock.{label}": "x"}
    state, values = inspections.state_of(found), inspections.label_values(found)
    assert (state.id, state.session_id, state.status) == ("c1", "s1", ContainerStatus.RUNNING)
    assert state.warning == values.trouble == f"its label io.penstock.{label} cannot be read"
    assert (state.gpus, values.ports, values.network, values.granted) == ([], (), None, NO_CORES)


def test_a_container_that_has_no_labels_has_a_state_all_the_same() -> None:
    """Somebody made it by hand and gave it a name of ours."""
    found = inspection()
    found["Config"]["Labels"] = None
    assert (inspections.state_of(found).id, inspections.state_of(found).session_id) == ("c1", "")


def test_one_whose_name_and_label_differ_is_known_by_docker_s_id_and_is_nobody_s() -> None:
    found = inspection() | {"Id": "ab" * 32}
    assert inspections.state_of(found).id == inspections.identity_of(found) == "c1"
    found["Config"]["Labels"][labels.LABEL_ID] = "c2"
    state = inspections.state_of(found)
    assert state.id == inspections.identity_of(found) == inspections.name_to_remove(state.id) == "ab" * 32
    assert (state.session_id, state.warning) == ("", "it is Docker's penstock-c1, and was penstock-c2")
    assert inspections.name_to_remove("c1") == "penstock-c1"
