"""A Docker Engine that is killed or stopped under a running agent: what the node says of itself, and of its ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import docker
import pytest

from appliance.agent.docker.engine_health import DEAD
from common.protocol import ENGINE_RESTARTED, ContainerSpec, ContainerStatus
from tests.integration.agent.calls import launch, put, states, suspend, wait_for
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


def test_who_ended_with_an_engine_is_known_by_an_agent_that_hears_of_it_when_another_one_runs(
    worker_engine: OwnEngine, agent: Agent, spec: Make
) -> None:
    """A busy agent takes up the ends that an engine told on its way out when the next one has long taken calls."""
    ended = spec()
    with agent.client() as client:
        assert launch(client, ended).status is ContainerStatus.RUNNING
        assert agent.process is not None
        suspend(agent.process.pid)
        try:
            worker_engine.stop()
            worker_engine.run_daemon()
        finally:
            os.kill(agent.process.pid, signal.SIGCONT)
        state = wait_for(client, ended.id, ContainerStatus.FAILED)
    assert (state.error, state.lost) == (ENGINE_RESTARTED, True)
