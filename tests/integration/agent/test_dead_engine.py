"""A Docker Engine that is killed under a running agent, and what the node says of itself meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import docker
import pytest

from appliance.agent.docker.engine_health import DEAD
from common.protocol import ContainerSpec, ContainerStatus
from tests.integration.agent.calls import launch, put, states
from tests.integration.agent.conftest import Agent, FakeApi
from tests.integration.own_engine import OwnEngine

Make = Callable[..., ContainerSpec]


@pytest.fixture
def dead(worker_engine: OwnEngine, agent: Agent, engine: docker.DockerClient) -> Iterator[OwnEngine]:
    """The engine of a running agent, which was killed, and answers again after the test at the latest."""
    worker_engine.kill()
    yield worker_engine
    if worker_engine.daemon is None or worker_engine.daemon.poll() is not None:
        worker_engine.run_daemon()


def test_the_node_is_unready_until_its_engine_answers_again(
    dead: OwnEngine, agent: Agent, fake_api: FakeApi, spec: Make
) -> None:
    fake_api.wait(lambda heartbeat: heartbeat.node_info.unready == DEAD)
    with agent.client() as client:
        assert put(client, spec()).status_code == 503
        assert states(client) == {}
        dead.run_daemon()
        fake_api.heartbeats.clear()
        fake_api.wait(lambda heartbeat: not heartbeat.node_info.unready)
        assert launch(client, spec()).status is ContainerStatus.RUNNING
