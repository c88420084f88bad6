"""Ports of containers, which only the site's edge may reach, by mutual TLS."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack

import docker
import httpx
import pytest

from common.protocol import ContainerSpec, ContainerState
from tests.integration.agent.calls import launch, states
from tests.integration.agent.conftest import Agent, Authority, FakeApi, make_authority

Make = Callable[..., ContainerSpec]
SERVE = ["mkdir /www; echo hello from $HOSTNAME > /www/index.html; exec httpd -f -p 8080 -h /www"]
ECHO = ["exec nc -ll -p 9000 -e cat"]


def get(agent: Agent, port: int, name: str = "master") -> str:
    """Return the page behind a port of the agent as soon as the server in the container is up."""
    context = agent.context(name)
    deadline = time.monotonic() + 10
    while True:
        try:
            return httpx.get(f"https://127.0.0.1:{port}/", verify=context).raise_for_status().text
        except httpx.RemoteProtocolError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def connect(agent: Agent, port: int) -> ssl.SSLSocket:
    bare = socket.create_connection(("127.0.0.1", port), timeout=10)
    return agent.context().wrap_socket(bare, server_hostname="127.0.0.1")


def echoes(agent: Agent, port: int) -> bool:
    with connect(agent, port) as connection:
        connection.sendall(b"?")
        return connection.recv(1) == b"?"


def is_closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def server(agent: Agent, spec: Make) -> ContainerState:
    """A container with a web server, of whose ports one is offered."""
    with agent.client() as client:
        return launch(client, spec(session_name="web", command=["sh", "-c"], args=SERVE, ports=[8080]))


def test_the_edge_reaches_the_port_and_the_host_has_none_of_it(
    agent: Agent, server: ContainerState, engine: docker.DockerClient, fake_api: FakeApi
) -> None:
    [(inner, outer)] = server.ports.items()
    assert inner == 8080
    assert 57000 <= outer <= 57999
    assert get(agent, outer) == "hello from web\n"
    assert not engine.containers.get(f"penstock-{server.id}").attrs["NetworkSettings"]["Ports"]
    fake_api.wait(lambda beat: [state.ports for state in beat.containers] == [{8080: outer}])


def test_only_the_edge_reaches_it(agent: Agent, server: ContainerState, authority: Authority) -> None:
    port = server.ports[8080]
    get(agent, port)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"https://127.0.0.1:{port}/", verify=agent.context("worker2"))
    bare = ssl.create_default_context(cafile=authority.ca)
    foreign = ssl.create_default_context(cafile=authority.ca)
    foreign.load_cert_chain(*make_authority(authority.folder / "foreign").issue("master"))
    for context in (bare, foreign):
        with pytest.raises(httpx.TransportError):
            httpx.get(f"https://127.0.0.1:{port}/", verify=context)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/")


def test_the_settings_may_name_the_edge(agent: Agent, spec: Make) -> None:
    agent.stop()
    agent.environment["PENSTOCK_AGENT_EDGE_NAMES"] = "edge1"
    agent.start()
    with agent.client() as client:
        state = launch(client, spec(session_name="web", command=["sh", "-c"], args=SERVE, ports=[8080]))
    assert get(agent, state.ports[8080], "edge1") == "hello from web\n"
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"https://127.0.0.1:{state.ports[8080]}/", verify=agent.context("master"))


def test_a_restarted_agent_offers_the_same_ports(agent: Agent, server: ContainerState) -> None:
    agent.stop()
    assert is_closed(server.ports[8080])
    agent.start()
    with agent.client() as client:
        assert states(client)[server.id] == server
    assert get(agent, server.ports[8080]) == "hello from web\n"


def test_ports_close_with_their_container(agent: Agent, server: ContainerState, engine: docker.DockerClient) -> None:
    port = server.ports[8080]
    engine.containers.get(f"penstock-{server.id}").kill()
    until(lambda: is_closed(port))
    with agent.client() as client:
        assert states(client)[server.id].ports == {}


def test_what_goes_through_may_flow_both_ways_for_long(agent: Agent, spec: Make) -> None:
    with agent.client() as client:
        state = launch(client, spec(command=["sh", "-c"], args=ECHO, ports=[9000]))
        until(lambda: echoes(agent, state.ports[9000]))
        block = bytes(range(256)) * 256
        with connect(agent, state.ports[9000]) as connection:
            for _ in range(16):
                connection.sendall(block)
                received = b""
                while len(received) < len(block):
                    received += connection.recv(1 << 16)
                assert received == block
            client.delete(f"/v1/containers/{state.id}?grace_s=0").raise_for_status()
            assert connection.recv(1) == b"", "the connection ends with the container"


def test_connections_are_limited(agent: Agent, spec: Make) -> None:
    from appliance.agent.port_forwarding import MAX_CONNECTIONS

    with agent.client() as client, ExitStack() as stack:
        state = launch(client, spec(command=["sh", "-c"], args=ECHO, ports=[9000]))
        until(lambda: echoes(agent, state.ports[9000]))
        connections = [stack.enter_context(connect(agent, state.ports[9000])) for _ in range(MAX_CONNECTIONS + 1)]
        answered = 0
        for connection in connections:
            connection.sendall(b"?")
            answered += connection.recv(1) == b"?"
        assert answered <= MAX_CONNECTIONS
        assert client.get("/v1/health").status_code == 200


def test_a_range_without_a_free_port_is_said_and_the_session_runs(agent: Agent, spec: Make) -> None:
    agent.stop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        agent.environment["PENSTOCK_AGENT_PORT_RANGE"] = f"{number}-{number}"
        agent.start()
        with agent.client() as client:
            state = launch(client, spec(ports=[8080]))
            assert state.status == "running"
            assert state.ports == {}
            assert f"every port from {number} to {number} is in use" in state.error
