"""Containers of ours that somebody changes by hand, with Docker's own commands."""

from __future__ import annotations

import time
from collections.abc import Callable

import docker
import pytest

from appliance.agent.labels import LABEL_GPUS, LABEL_ID, LABEL_SESSION, LABEL_USER
from common.protocol import ContainerSpec, ContainerState, ContainerStatus
from tests.integration.agent.calls import launch, put, states
from tests.integration.agent.conftest import Agent

Make = Callable[..., ContainerSpec]
SHARE = {"uuid": "SIM-worker1-0", "index": 0, "milli": 500}


@pytest.fixture
def looking(node: Agent) -> Agent:
    """An agent that looks at all containers each second."""
    node.environment["PENSTOCK_AGENT_LIST_INTERVAL_S"] = "1"
    node.start()
    return node


def soon(look: Callable[[], ContainerState | None], timeout_s: float = 60) -> ContainerState:
    deadline = time.monotonic() + timeout_s
    while (found := look()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_renamed_container_is_told_as_one_of_no_session_and_holds_its_gpus(
    looking: Agent, spec: Make, engine: docker.DockerClient, run_id: str
) -> None:
    whole = spec(gpus=[SHARE])
    with looking.client() as client:
        launch(client, whole)
        container = engine.containers.get(f"penstock-{whole.id}")
        container.rename(f"mine-{run_id}")
        docker_id = str(container.id)
        strange = soon(lambda: states(client).get(docker_id))
        assert states(client).keys() == {docker_id}
        assert (strange.session_id, strange.status) == ("", ContainerStatus.RUNNING)
        assert strange.warning == f"it is Docker's mine-{run_id}, and was penstock-{whole.id}"
        assert [share.milli for share in strange.gpus] == [500]
        refused = put(client, spec(gpus=[{**SHARE, "milli": 600}]))
        assert refused.status_code == 409, refused.text
        looking.stop()
        looking.start()
        assert states(client).keys() == {docker_id}
        client.delete(f"/v1/containers/{docker_id}", params={"grace_s": 0}).raise_for_status()
        assert states(client) == {}
    assert not engine.containers.list(all=True, filters={"id": docker_id})


def test_one_with_our_labels_that_we_did_not_make_is_told_too(
    looking: Agent, spec: Make, image: str, engine: docker.DockerClient, run_id: str
) -> None:
    with looking.client() as client:
        whole = launch(client, spec())
        labels = {LABEL_ID: whole.id, LABEL_SESSION: whole.session_id, LABEL_USER: run_id, LABEL_GPUS: "[]"}
        copied = engine.containers.run(image, ["sleep", "600"], labels=labels, detach=True)
        copied_id = str(copied.id)
        soon(lambda: states(client).get(copied_id))
        assert states(client)[whole.id].status is ContainerStatus.RUNNING
        copied.kill()
        soon(lambda: found if (found := states(client)[copied_id]).status.is_final else None)
        assert states(client)[whole.id].status is ContainerStatus.RUNNING


def test_a_paused_container_says_so_until_it_goes_on(agent: Agent, spec: Make, engine: docker.DockerClient) -> None:
    whole = spec(gpus=[SHARE])
    with agent.client() as client:
        launch(client, whole)
        container = engine.containers.get(f"penstock-{whole.id}")
        container.pause()
        paused = soon(lambda: found if (found := states(client)[whole.id]).warning else None)
        assert paused.status is ContainerStatus.RUNNING
        assert (
            paused.warning
            == f"it is paused: somebody ran `docker pause`; `docker unpause penstock-{whole.id}` ends that"
        )
        container.unpause()
        soon(lambda: found if not (found := states(client)[whole.id]).warning else None)
