"""Ports of containers, which only the site's edge may reach, by mutual TLS."""

from __future__ import annotations

import itertools
import socket
import ssl
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress

import docker
import httpx
import pytest

from common.app_protocol import CONTAINER_HEADER
from common.protocol import ContainerSpec, ContainerState
from tests.integration.agent.calls import launch, states
from tests.integration.agent.conftest import Agent, Authority, FakeApi, free_port, make_authority

Make = Callable[..., ContainerSpec]
SERVE = ["mkdir /www; echo hello from $HOSTNAME > /www/index.html; exec httpd -f -p 8080 -h /www"]
ECHO = ["exec nc -ll -p 9000 -e cat"]


def ask(agent: Agent, port: int, identity: str, name: str = "master") -> str:
    """Return what a port of the agent answers to who wants a container."""
    headers = {CONTAINER_HEADER: identity}
    return httpx.get(f"https://127.0.0.1:{port}/", verify=agent.context(name), headers=headers).raise_for_status().text


def get(agent: Agent, state: ContainerState, name: str = "master") -> str:
    """Return the page behind the port of a container as soon as the server in there is up."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return ask(agent, state.ports[8080], state.id, name)
        except httpx.RemoteProtocolError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def connect(agent: Agent, state: ContainerState) -> ssl.SSLSocket:
    """Open a connection to the port 9000 of a container, as the edge begins one for a WebSocket."""
    bare = socket.create_connection(("127.0.0.1", state.ports[9000]), timeout=60)
    connection = agent.context().wrap_socket(bare, server_hostname="127.0.0.1")
    connection.sendall(HEAD[:-2] + f"{CONTAINER_HEADER}: {state.id}\r\n\r\n".encode())
    return connection


HEAD = b"GET / HTTP/1.1\r\n\r\n"
"""What the container sees of the head that `connect` sends."""


def receive(connection: ssl.SSLSocket, length: int) -> bytes:
    """Return so many bytes, or fewer where the connection ends."""
    received = b""
    while len(received) < length and (chunk := connection.recv(length - len(received))):
        received += chunk
    return received


def echoes(agent: Agent, state: ContainerState) -> bool:
    with connect(agent, state) as connection:
        return receive(connection, len(HEAD)) == HEAD


def is_closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def of_one_first_choice(port: int, count: int) -> list[str]:
    """Return ids whose containers would all have the first of two ports."""
    found = (f"t-{number}" for number in itertools.count() if not zlib.crc32(f"t-{number}:{port}".encode()) % 2)
    return list(itertools.islice(found, count))


def two_free_ports() -> int:
    """Return the first of two ports in a row that nobody listens on."""
    while True:
        first = free_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", first + 1)):
            return first


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
    assert get(agent, server) == "hello from web\n"
    assert not engine.containers.get(f"penstock-{server.id}").attrs["NetworkSettings"]["Ports"]
    fake_api.wait(lambda beat: [state.ports for state in beat.containers] == [{8080: outer}])


def test_only_the_edge_reaches_it(agent: Agent, server: ContainerState, authority: Authority) -> None:
    port = server.ports[8080]
    get(agent, server)
    with pytest.raises(httpx.RemoteProtocolError):
        ask(agent, port, server.id, "worker2")
    bare = ssl.create_default_context(cafile=authority.ca)
    foreign = ssl.create_default_context(cafile=authority.ca)
    foreign.load_cert_chain(*make_authority(authority.folder / "foreign").issue("master"))
    for context in (bare, foreign):
        with pytest.raises(httpx.TransportError):
            httpx.get(f"https://127.0.0.1:{port}/", verify=context, headers={CONTAINER_HEADER: server.id})
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/", headers={CONTAINER_HEADER: server.id})


def test_the_settings_may_name_the_edge(agent: Agent, spec: Make) -> None:
    agent.stop()
    agent.environment["PENSTOCK_AGENT_EDGE_NAMES"] = "edge1"
    agent.start()
    with agent.client() as client:
        state = launch(client, spec(session_name="web", command=["sh", "-c"], args=SERVE, ports=[8080]))
    assert get(agent, state, "edge1") == "hello from web\n"
    with pytest.raises(httpx.RemoteProtocolError):
        ask(agent, state.ports[8080], state.id, "master")


def test_a_restarted_agent_offers_the_same_ports(agent: Agent, server: ContainerState) -> None:
    agent.stop()
    assert is_closed(server.ports[8080])
    agent.start()
    with agent.client() as client:
        assert states(client)[server.id] == server
    assert get(agent, server) == "hello from web\n"


@pytest.mark.parametrize("wanted", ["another", "", "t-"])
def test_whoever_wants_another_container_gets_nothing_of_this_one(
    agent: Agent, server: ContainerState, wanted: str
) -> None:
    get(agent, server)
    with pytest.raises(httpx.RemoteProtocolError):
        ask(agent, server.ports[8080], wanted)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"https://127.0.0.1:{server.ports[8080]}/", verify=agent.context())
    assert f"wanted={wanted}" in agent.log.read_text().replace("'", "")


def test_a_port_that_another_container_got_after_a_restart_does_not_serve_who_was_led_there_before(
    agent: Agent, spec: Make, engine: docker.DockerClient
) -> None:
    """The edge learns of new ports by the next heartbeat; until then it asks at the old ones."""
    agent.stop()
    first = two_free_ports()
    agent.environment["PENSTOCK_AGENT_PORT_RANGE"] = f"{first}-{first + 1}"
    agent.start()
    with agent.client() as client:
        servers = [
            launch(client, spec(id=identity, command=["sh", "-c"], args=SERVE, ports=[8080]))
            for identity in of_one_first_choice(8080, 2)
        ]
        for state in servers:
            get(agent, state)
        agent.stop()
        engine.containers.get(f"penstock-{servers[0].id}").remove(force=True)
        agent.start()
        moved = states(client)[servers[1].id]
    assert moved.ports[8080] == servers[0].ports[8080], "what led to the first container leads to the second one"
    assert get(agent, moved)
    with pytest.raises(httpx.RemoteProtocolError):
        ask(agent, servers[0].ports[8080], servers[0].id)


def test_ports_close_with_their_container(agent: Agent, server: ContainerState, engine: docker.DockerClient) -> None:
    port = server.ports[8080]
    engine.containers.get(f"penstock-{server.id}").kill()
    until(lambda: is_closed(port))
    with agent.client() as client:
        until(lambda: states(client)[server.id].ports == {})


def test_what_goes_through_may_flow_both_ways_for_long(agent: Agent, spec: Make) -> None:
    with agent.client() as client:
        state = launch(client, spec(command=["sh", "-c"], args=ECHO, ports=[9000]))
        until(lambda: echoes(agent, state))
        block = bytes(range(256)) * 256
        with connect(agent, state) as connection:
            assert receive(connection, len(HEAD)) == HEAD
            for _ in range(16):
                connection.sendall(block)
                assert receive(connection, len(block)) == block
            client.delete(f"/v1/containers/{state.id}?grace_s=0").raise_for_status()
            assert connection.recv(1) == b"", "the connection ends with the container"


def test_connections_are_limited(agent: Agent, spec: Make) -> None:
    from appliance.agent.port_forwarding import MAX_CONNECTIONS

    with agent.client() as client, ExitStack() as stack:
        state = launch(client, spec(command=["sh", "-c"], args=ECHO, ports=[9000]))
        until(lambda: echoes(agent, state))
        connections = [stack.enter_context(connect(agent, state)) for _ in range(MAX_CONNECTIONS + 1)]
        answered = sum(receive(connection, 1) == b"G" for connection in connections)
        assert 1 <= answered <= MAX_CONNECTIONS
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
