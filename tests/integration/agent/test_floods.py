"""An agent whose ports somebody fills with connections that show no certificate: it goes on as if nobody were there."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from appliance.agent import listener
from common.protocol import ContainerSpec, ContainerStatus
from tests import floods
from tests.floods import Held
from tests.integration.agent.calls import launch, states
from tests.integration.agent.conftest import Agent, FakeApi

Make = Callable[..., ContainerSpec]
FLOOD = 1150
"""More connections than an agent once had descriptors."""


@contextmanager
def flood(port: int, *sources: str, count: int = FLOOD) -> Iterator[Held]:
    """Hold bare connections from these addresses."""

    def open_one(held: Held, number: int) -> None:
        held.append(socket.create_connection(("127.0.0.1", port), 1, (sources[number % len(sources)], 0)))

    with floods.flood(open_one, count) as held:
        yield held


@pytest.fixture
def agent(node: Agent) -> Agent:
    """An agent that may open no more than systemd allows a service by itself."""
    node.start()
    assert node.process is not None
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    return node


def open_files(agent: Agent) -> int:
    assert agent.process is not None
    return len([*Path(f"/proc/{agent.process.pid}/fd").iterdir()])


def test_calls_and_heartbeats_go_on(agent: Agent, spec: Make, fake_api: FakeApi) -> None:
    """From the address of those that may call, too, and for longer than a handshake may take."""
    began = time.monotonic()
    with flood(agent.port, "127.0.0.7"), flood(agent.port, "127.0.0.1"):
        beats = len(fake_api.heartbeats)
        with agent.client() as client:
            wanted = spec(command=["sh", "-c"], args=["sleep 600"])
            launch(client, wanted)
            assert states(client)[wanted.id].status is ContainerStatus.RUNNING
        while time.monotonic() - began < 3 * listener.STRANGER_S:
            with agent.client() as client:
                assert client.get("/v1/health", timeout=20).status_code == 200
            time.sleep(0.5)
        fake_api.wait(lambda _: len(fake_api.heartbeats) - beats > 10)
        assert open_files(agent) < 700


def test_who_shows_no_certificate_is_cut_soon(agent: Agent) -> None:
    with socket.create_connection(("127.0.0.1", agent.port)) as connection:
        connection.settimeout(30)
        with suppress(ConnectionError):
            assert connection.recv(1) == b""


def test_a_certificate_of_another_node_holds_no_connection(agent: Agent) -> None:
    context = agent.context("worker2")
    with context.wrap_socket(
        socket.create_connection(("127.0.0.1", agent.port)), server_hostname="127.0.0.1"
    ) as connection:
        connection.settimeout(30)
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n")
        with suppress(ConnectionError):
            assert connection.recv(1) == b""


def test_heartbeats_have_one_connection(agent: Agent, fake_api: FakeApi) -> None:
    """As often as they are on a site: between two there is longer than clients keep connections by themselves."""
    fake_api.interval_s = 5.5
    fake_api.wait(lambda heartbeat: heartbeat.sequence >= 4)
    assert fake_api.connections == 1


def test_another_address_gets_in_while_strangers_come_from_many(agent: Agent) -> None:
    """Those that are cut come back: it is as full after the time that a handshake may take."""
    began = time.monotonic()
    with flood(agent.port, *(f"127.0.1.{number}" for number in range(1, 61)), count=900):
        while time.monotonic() - began < 2 * listener.STRANGER_S:
            with agent.client() as client:
                assert client.get("/v1/health", timeout=20).status_code == 200
            time.sleep(0.5)
        assert 300 < open_files(agent) < 700
