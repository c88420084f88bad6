"""Containers whose events the agent never hears of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from common.protocol import ContainerSpec, ContainerStatus
from tests.integration.agent.calls import launch, states, wait_for
from tests.integration.agent.conftest import Agent, FakeApi
from tests.integration.agent.deaf import deaf_socket

Make = Callable[..., ContainerSpec]


@pytest.fixture
def deaf(node: Agent, worker_engine: object, tmp_path: Path) -> Iterator[Agent]:
    """An agent that hears of no event, and looks at all containers each second."""
    real = os.environ["DOCKER_HOST"].removeprefix("unix://")
    with deaf_socket(real, Path(real).parent / "deaf.sock") as path:
        node.environment |= {"PENSTOCK_AGENT_DOCKER_SOCKET": str(path), "PENSTOCK_AGENT_LIST_INTERVAL_S": "1"}
        node.start()
        yield node
        node.stop()


def test_an_end_whose_event_was_lost_is_found_by_looking_at_all_containers(
    deaf: Agent, engine: docker.DockerClient, spec: Make, fake_api: FakeApi
) -> None:
    ends, goes, stays = spec(), spec(), spec()
    with deaf.client() as client:
        for each in (ends, goes, stays):
            assert launch(client, each).status is ContainerStatus.RUNNING
        engine.containers.get(f"penstock-{ends.id}").kill()
        engine.containers.get(f"penstock-{goes.id}").remove(force=True)
        wait_for(client, ends.id, ContainerStatus.EXITED)
        fake_api.wait(lambda heartbeat: {ends.id, stays.id} == {state.id for state in heartbeat.containers})
        assert states(client)[stays.id].status is ContainerStatus.RUNNING
