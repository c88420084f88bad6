"""The edges under attack: nodes stay ready, other people are served, and who is slow on purpose is cut."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from common.protocol import HEARTBEAT_PATH
from common.settings.edge import EdgeSettings
from tests import floods
from tests.floods import Held
from tests.integration.agent.conftest import Authority, authority  # noqa: F401
from tests.integration.echo import running_echo
from tests.integration.edge import AGENT, Edge, rendered, running_edge
from tests.role_modules import role_module

evidence = role_module("evidence/library/node_evidence.py")

ATTACKER, OTHER = "127.0.0.7", "127.0.0.8"
FLOOD = 2000
"""More slow connections than those that once took console, API, apps and nodes down."""

STRANGER = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
STRANGER.check_hostname, STRANGER.verify_mode = False, ssl.CERT_NONE


@pytest.fixture
def echo() -> Iterator[int]:
    with running_echo() as port:
        yield port


@pytest.fixture
def edge(authority: Authority, tmp_path: Path, echo: int) -> Iterator[Edge]:  # noqa: F811
    with running_edge(authority, f"127.0.0.1:{echo}", tmp_path) as running:
        yield running


def connect(port: int, timeout_s: float = 5) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout_s, (ATTACKER, 0))


def encrypted(port: int, timeout_s: float = 5) -> ssl.SSLSocket:
    connection = connect(port, timeout_s)
    try:
        return STRANGER.wrap_socket(connection)
    except OSError:
        connection.close()
        raise


@contextmanager
def flood(*ports: int, count: int = FLOOD) -> Iterator[Held]:
    """Hold connections that say nothing, or begin a request and never end it."""

    def open_one(held: Held, number: int) -> None:
        port = ports[number % len(ports)]
        if number % 3 == 0:
            held.append(connect(port))
        else:
            begun = encrypted(port, 0.1)
            held.append(begun)
            begun.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")

    with floods.flood(open_one, count) as held:
        yield held


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def seconds_until_closed(connection: socket.socket, limit_s: float) -> float:
    began = time.monotonic()
    connection.settimeout(limit_s)
    with contextlib.suppress(OSError):
        while connection.recv(65536):
            pass
    return time.monotonic() - began


@contextmanager
def agent(pki: Authority, name: str = AGENT) -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=str(pki.ca))
    context.load_cert_chain(*pki.issue(name))
    with httpx.Client(verify=context, timeout=30) as client:
        yield client


def heartbeat(edge: Edge, client: httpx.Client) -> int:
    return client.post(f"https://127.0.0.1:{edge.agents}{HEARTBEAT_PATH}", json={}).status_code


def get(port: int, source: str) -> int:
    transport = httpx.HTTPTransport(verify=False, local_address=source)
    with httpx.Client(transport=transport, timeout=30) as client:
        return client.get(f"https://127.0.0.1:{port}/").status_code


def test_agents_are_heard_even_where_people_have_no_connection_left(
    authority: Authority,  # noqa: F811
    echo: int,
    tmp_path: Path,
) -> None:
    """Longer than the 15 s after which a node counts as lost."""
    room = {"edge_worker_connections": 256}
    with (
        running_edge(authority, f"127.0.0.1:{echo}", tmp_path, **room) as edge,
        flood(edge.console, edge.api, edge.apps),
        agent(authority) as known,
    ):
        until(lambda: "worker_connections are not enough" in (tmp_path / "edge/error.log").read_text())
        for _ in range(17):
            with agent(authority) as started_again:
                assert (heartbeat(edge, known), heartbeat(edge, started_again)) == (200, 200)
            time.sleep(1)


def test_other_people_are_served_while_one_address_holds_connections(edge: Edge) -> None:
    with flood(edge.console, edge.api, edge.apps):
        assert [get(port, OTHER) for port in (edge.console, edge.api)] == [200, 200]


def test_agents_of_other_nodes_are_heard_while_one_address_holds_connections_to_their_port(
    edge: Edge,
    authority: Authority,  # noqa: F811
) -> None:
    with flood(edge.agents), agent(authority) as client:
        assert heartbeat(edge, client) == 200


def never_shakes_hands(port: int, _: ssl.SSLContext) -> float:
    with connect(port, 30) as connection:
        return seconds_until_closed(connection, 40)


def never_ends_its_head(port: int, _: ssl.SSLContext) -> float:
    with encrypted(port, 30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        return seconds_until_closed(connection, 40)


def never_sends_its_body(port: int, _: ssl.SSLContext) -> float:
    with encrypted(port, 30) as connection:
        connection.sendall(b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        return seconds_until_closed(connection, 60)


def goes_on_sending(port: int, known: ssl.SSLContext) -> float:
    with known.wrap_socket(connect(port, 30), server_hostname="127.0.0.1") as connection:
        connection.sendall(b"POST /agent/v1/heartbeat HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 40:
                connection.sendall(b"x" * 1000)
                time.sleep(0.2)
        return time.monotonic() - began


SLOW: list[tuple[str, Callable[[int, ssl.SSLContext], float], float]] = [
    ("console", never_shakes_hands, 30),
    ("agents", never_shakes_hands, 30),
    ("console", never_ends_its_head, 30),
    ("agents", never_ends_its_head, 30),
    ("api", never_sends_its_body, 40),
    ("console", goes_on_sending, 30),
    ("api", goes_on_sending, 30),
    ("agents", goes_on_sending, 30),
]
"""Who is slow on purpose: the port, what he does there, and for how many seconds he is held at most."""


@pytest.fixture(scope="module")
def held(
    authority: Authority,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[Future[float]]]:
    """How long an edge holds each of them. They come at once: one after the other they would wait for a minute."""
    known = ssl.create_default_context(cafile=str(authority.ca))
    known.load_cert_chain(*authority.issue(AGENT))
    with (
        running_echo() as echo,
        running_edge(authority, f"127.0.0.1:{echo}", tmp_path_factory.mktemp("slow")) as edge,
        ThreadPoolExecutor(len(SLOW)) as pool,
    ):
        yield [pool.submit(how, getattr(edge, name), known) for name, how, _ in SLOW]


@pytest.mark.parametrize("number", range(len(SLOW)), ids=[f"{name}-{how.__name__}" for name, how, _ in SLOW])
def test_who_is_slow_on_purpose_is_cut(held: list[Future[float]], number: int) -> None:
    *_, most_s = SLOW[number]
    assert held[number].result() < most_s


def test_one_address_has_so_many_requests_under_way_and_others_have_theirs(
    authority: Authority,  # noqa: F811
    echo: int,
    tmp_path: Path,
) -> None:
    few = {"edge_settings": EdgeSettings(connections_per_address=16).model_dump()}
    with running_edge(authority, f"127.0.0.1:{echo}", tmp_path, **few) as edge, ExitStack() as stack:
        for _ in range(16):
            begun = stack.enter_context(encrypted(edge.api))
            begun.sendall(b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        # each process of the edge comes to what it was sent in its own time
        until(lambda: get(edge.api, ATTACKER) == 429)
        assert get(edge.api, OTHER) == 200


@pytest.mark.parametrize(
    ("role", "script", "ports"),
    [("edge", "edge-limits", [443, 56789, 9443]), ("agent_edge", "agent-edge-limits", [56790])],
)
def test_the_kernel_counts_connections_that_say_nothing(
    role: str, script: str, ports: list[int], tmp_path: Path
) -> None:
    """In a network namespace of its own, as on a node; a second start changes nothing."""
    variables = {"edge_settings": EdgeSettings(connections_per_address=16).model_dump()}
    text = rendered(role, f"usr/lib/penstock/{script}", **variables, agent_edge_connections_per_address=16)
    (tmp_path / script).write_text(text)
    (tmp_path / "ask.py").write_text(
        f"""
import socket
ports = {ports}
servers = [socket.create_server(("127.0.0.1", port), backlog=100) for port in ports]
def count(source):
    held = []
    for number in range(30):
        try:
            held.append(socket.create_connection(("127.0.0.1", ports[number % len(ports)]), 2, (source, 0)))
        except ConnectionRefusedError:
            pass
    return held
first, second = count({ATTACKER!r}), count({OTHER!r})
print(len(first), len(second))
for each in first:
    each.close()
for server in servers:
    server.setblocking(False)
    try:
        while True:
            server.accept()[0].close()
    except BlockingIOError:
        pass
print(len(count({ATTACKER!r})))
"""
    )
    lines = f"ip link set lo up; sh {script}; sh {script}; iptables -S INPUT; /usr/bin/python3 ask.py"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    rules, first, again = done.stdout.splitlines()[:-2], *done.stdout.splitlines()[-2:]
    assert len(rules) == 2
    assert (first, again) == ("16 16", "16")


@pytest.mark.parametrize(("lacks", "expected"), [("connlimit", 75), ("multiport", 1)])
@pytest.mark.parametrize(("role", "script"), [("edge", "edge-limits"), ("agent_edge", "agent-edge-limits")])
def test_a_kernel_that_cannot_count_is_told_from_other_faults(
    role: str, script: str, lacks: str, expected: int, tmp_path: Path
) -> None:
    """With the real program but for what the kernel refuses; afterwards the evidence of the node says the same."""
    variables = {"edge_settings": EdgeSettings().model_dump(), "agent_edge_connections_per_address": 16}
    (tmp_path / script).write_text(rendered(role, f"usr/lib/penstock/{script}", **variables))
    chain = f"PENSTOCK-{script.removesuffix('-limits').upper()}"
    refusing = tmp_path / "iptables"
    refusing.write_text(
        f'#!/bin/sh\ncase "$*" in *{lacks}*) echo "Extension {lacks} is not supported" >&2; exit 1;; esac\n'
        f'exec {shutil.which("iptables")} "$@"\n'
    )
    refusing.chmod(0o755)
    lines = f"PATH={tmp_path}:$PATH sh {script}; echo $?; iptables -S {chain}; iptables -C INPUT -j {chain}; echo $?"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    code, *rules, jumps = done.stdout.splitlines()
    assert (int(code), done.stderr.count(f"Extension {lacks} is not supported")) == (expected, 1)
    told = evidence.limit(chain, lambda *words: (int(jumps), "") if "--check" in words else (0, "\n".join(rules)))
    assert (told["ok"], "the kernel cannot count" in told["detail"]) == (lacks == "connlimit", lacks == "connlimit")


def test_both_edges_are_what_their_units_start_and_have_room_for_all_connections() -> None:
    for role, name in (("edge", "edge"), ("agent_edge", "agent-edge")):
        unit = rendered(role, f"etc/systemd/system/penstock-{name}.service")
        assert f"/etc/penstock/{name}.conf" in unit
        assert f"/usr/lib/penstock/{name}-limits" in unit
