"""What sessions reach, on the real Docker Engine: each way out is seen to lead somewhere without the rules."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import docker
import pytest

from appliance.agent.docker import egress_rules, gang_network
from appliance.agent.docker.egress_policy import INTERVAL_S
from common.protocol import ContainerSpec, ContainerStatus
from tests.integration.agent.calls import launch, put
from tests.integration.agent.conftest import Agent, FakeApi
from tests.integration.agent.other_node import OtherNode, run
from tests.integration.agent.test_gang_networks import network
from tests.integration.agent.test_ports import SERVE, get
from tests.role_modules import role_module

Make = Callable[..., ContainerSpec]
session_ways = role_module("evidence/library/session_ways.py")
EDGE, SSH, NFS, OPENED = 443, 22, 2049, 8000
OUTSIDE = "203.0.113.7"

SERVE_ALL = """
import socket, sys, threading
options = {"family": socket.AF_INET6, "dualstack_ipv6": True, "backlog": 1024}
servers = [socket.create_server(("::", int(port)), **options) for port in sys.argv[1:]]
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind(("::", 5353))
print("ready", flush=True)
while True:
    data, peer = udp.recvfrom(100)
    udp.sendto(data, peer)
"""
"""Listens on TCP ports of every address, and answers to datagrams on port 5353."""

TRY = """
import json, socket, sys
found = {}
for target in sys.argv[1:]:
    kind, host, port = target.split(",")
    family, _, _, _, address = socket.getaddrinfo(host, int(port))[0]
    with socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as one:
        one.settimeout(3)
        try:
            one.connect(address)
            if kind == "udp":
                one.send(b"x")
                one.recv(100)
            found[target] = ""
        except OSError as error:
            found[target] = error.strerror or "timed out"
print(json.dumps(found))
"""
"""Prints what comes of connections, by their targets; nothing where they succeed."""

HOLD = """
import socket, struct, sys
host, port, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held = []
try:
    while len(held) < most:
        held.append(socket.create_connection((host, port), 3))
        # nobody there reads, so that an ordered end would wait for ever
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
except OSError:
    pass
print(len(held), flush=True)
sys.stdin.read()
"""
"""Makes silent connections until one is refused, prints how many it has, and holds them until its input ends."""


def pid_of(engine: docker.DockerClient, spec: ContainerSpec) -> int:
    return int(engine.containers.get(f"penstock-{spec.id}").attrs["State"]["Pid"])


def on_bridge(engine: docker.DockerClient, spec: ContainerSpec) -> tuple[str, str]:
    """Return this machine's address on the bridge of a container, and that of the container."""
    there = engine.containers.get(f"penstock-{spec.id}").attrs["NetworkSettings"]["Networks"]["bridge"]
    return there["Gateway"], there["IPAddress"]


def on_network(engine: docker.DockerClient, spec: ContainerSpec, *command: str) -> tuple[str, ...]:
    """Return a command of this machine as one on the network of a container, with no more rights than that has."""
    there = ("nsenter", f"--net=/proc/{pid_of(engine, spec)}/ns/net", "setpriv", "--bounding-set=-all", "--reuid=65534")
    return (*there, "--regid=65534", "--clear-groups", "--inh-caps=-all", *command)


def inside(engine: docker.DockerClient, spec: ContainerSpec, *command: str) -> str:
    """Return what a program of this machine prints on the network of a container."""
    return run(*on_network(engine, spec, *command))


def reached(engine: docker.DockerClient, spec: ContainerSpec, *targets: str) -> set[str]:
    """Return which targets a container reaches."""
    tried: dict[str, str] = json.loads(inside(engine, spec, sys.executable, "-c", TRY, *targets))
    return {target for target, error in tried.items() if not error}


def speak_ipv6(engine: docker.DockerClient, spec: ContainerSpec, device: str = "eth0") -> None:
    """Give a container a link-local address, as it has one where Docker cannot switch IPv6 off."""
    for name, value in {"accept_dad": 0, "disable_ipv6": 0}.items():
        setting = f"/proc/sys/net/ipv6/conf/{device}/{name}"
        there = f"--net=/proc/{pid_of(engine, spec)}/ns/net"
        run("nsenter", there, "sh", "-c", f"echo {value} > {setting}")


def link_local(shown: str) -> str:
    """Return the link-local address in what `ip -j -6 address show` has printed."""
    [device] = json.loads(shown)
    return next(str(each["local"]) for each in device["addr_info"] if each["scope"] == "link")


@pytest.fixture
def listening() -> Iterator[Callable[..., None]]:
    """Lets a network namespace listen on ports; None is this machine's own, a number that of a process."""
    with ExitStack() as stack:

        def listen(where: str | int | None, *ports: int) -> None:
            way = {str: ["ip", "netns", "exec", str(where)], int: ["nsenter", f"--net=/proc/{where}/ns/net"]}
            command = [*way.get(type(where), []), sys.executable, "-c", SERVE_ALL, *map(str, ports)]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"

        yield listen


@pytest.fixture
def held(other_node: OtherNode, node: Agent, tmp_path: Path) -> Iterator[Agent]:
    """An agent whose sessions may reach the edge on another node, and a part of what is outside of the site."""
    other_node.run("ip", "addr", "add", f"{OUTSIDE}/32", "dev", f"{other_node.name}b")
    other_node.run("ip", "route", "add", "default", "via", OtherNode.here)
    run("ip", "route", "add", f"{OUTSIDE}/32", "via", OtherNode.there)
    node.environment["PENSTOCK_AGENT_BIND"] = "0.0.0.0"
    nodes = tmp_path / "nodes"
    nodes.write_text(f"{OtherNode.here} here\n{OtherNode.there} there\n")
    node.environment["PENSTOCK_AGENT_NODES_FILE"] = str(nodes)
    destinations = [f"{OtherNode.there}:{EDGE}", f"203.0.113.0/24:{OPENED}-{OPENED + 9}", f"{OtherNode.there}:5353/udp"]
    node.environment["PENSTOCK_AGENT_EGRESS"] = " ".join([*destinations, f"198.51.100.0/24:{NFS}"])
    node.start()
    yield node
    flush()


def flush() -> None:
    """Take the rules away, if they are there."""
    subprocess.run(("nft", "delete", "table", "inet", egress_rules.TABLE), check=False, capture_output=True)


def unheld(engine: docker.DockerClient, spec: ContainerSpec, *targets: str) -> set[str]:
    """Return which targets a container reaches in the moment in which there are no rules."""
    flush()
    return reached(engine, spec, *targets)


def soon(look: Callable[[], set[str]], wanted: set[str]) -> None:
    deadline = time.monotonic() + 60
    while (found := look()) != wanted:
        assert time.monotonic() < deadline, wanted ^ found
        time.sleep(0.2)


def test_a_session_reaches_what_is_opened_and_nothing_else_of_the_site(
    held: Agent,
    other_node: OtherNode,
    engine: docker.DockerClient,
    spec: Make,
    listening: Callable[..., None],
) -> None:
    one, neighbour = spec(), spec()
    with held.client() as client:
        for each in (one, neighbour):
            assert launch(client, each).status is ContainerStatus.RUNNING
    listening(other_node.name, EDGE, SSH, NFS, OPENED)
    listening(None, SSH)
    listening(pid_of(engine, neighbour), 8888)
    gateway, beside = on_bridge(engine, neighbour)
    for each in (one, neighbour):
        speak_ipv6(engine, each)
    bridge_link = link_local(run("ip", "-j", "-6", "address", "show", "dev", "docker0"))
    beside_link = link_local(inside(engine, neighbour, "ip", "-j", "-6", "address", "show", "dev", "eth0"))
    may = {f"tcp,{OtherNode.there},{EDGE}", f"tcp,{OUTSIDE},{OPENED}", f"udp,{OtherNode.there},5353"}
    may_not = {
        f"tcp,{OtherNode.there},{SSH}",
        f"tcp,{OtherNode.there},{NFS}",  # a range opens no node
        f"tcp,{OUTSIDE},{SSH}",
        f"tcp,{OtherNode.here},{SSH}",
        f"tcp,{gateway},{SSH}",
        f"udp,{gateway},5353",
        f"tcp,{beside},8888",
        f"tcp,{bridge_link}%eth0,{SSH}",
        f"udp,{bridge_link}%eth0,5353",
        f"tcp,{beside_link}%eth0,8888",
    }
    assert reached(engine, one, *may, *may_not) == may

    soon(lambda: unheld(engine, one, *may, *may_not), may | may_not)
    # somebody who empties the node's firewall takes nothing away for long
    soon(lambda: reached(engine, one, *may, *may_not), may)
    assert "put back" in held.log.read_text()


def test_ports_of_sessions_lead_in_and_the_agent_is_none_of_their_business(
    held: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    serving, other = spec(command=["sh", "-c"], args=SERVE, ports=[8080]), spec()
    with held.client() as client:
        state = launch(client, serving)
        launch(client, other)
    assert get(held, state).startswith("hello from")
    gateway, _ = on_bridge(engine, other)
    agent = {f"tcp,{gateway},{port}" for port in (held.port, *state.ports.values())}
    assert not reached(engine, other, *agent)
    soon(lambda: unheld(engine, other, *agent), agent)
    assert get(held, state).startswith("hello from"), "connections of before the rules came back do not matter"


def test_programs_of_other_accounts_of_the_node_reach_an_app_by_its_agent_alone(
    held: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    """Apps ask nobody who comes, as the edge has; and jobs of people run beside sessions where Slurm lends places."""
    serving = spec(command=["sh", "-c"], args=SERVE, ports=[8080])
    with held.client() as client:
        state = launch(client, serving)
    _, address = on_bridge(engine, serving)
    way = f"tcp,{address},8080"

    def reached_by_people() -> set[str]:
        words = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", TRY, way)
        return {target for target, error in json.loads(run(*words)).items() if not error}

    def unheld_people() -> set[str]:
        flush()
        return reached_by_people()

    assert get(held, state).startswith("hello from")
    assert reached_by_people() == set()
    soon(unheld_people, {way})
    soon(reached_by_people, set())
    assert get(held, state).startswith("hello from")


def test_a_session_holds_some_connections_and_leaves_those_of_its_node_to_the_others(
    held: Agent, other_node: OtherNode, engine: docker.DockerClient, spec: Make, listening: Callable[..., None]
) -> None:
    greedy, neighbour = spec(), spec()
    with held.client() as client:
        for each in (greedy, neighbour):
            launch(client, each)
    listening(other_node.name, EDGE)
    command = on_network(engine, greedy, sys.executable, "-c", HOLD, OtherNode.there, str(EDGE), "300")
    way = {f"tcp,{OtherNode.there},{EDGE}"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holding:
        assert holding.stdout is not None
        assert int(holding.stdout.readline()) == egress_rules.MOST_CONNECTIONS
        assert not reached(engine, greedy, *way)
        assert reached(engine, neighbour, *way) == way
        # that the kernel counts them is no change of the rules
        time.sleep(INTERVAL_S + 1)
        assert "put back" not in held.log.read_text()
        holding.communicate()
    soon(lambda: reached(engine, greedy, *way), way)


def test_the_way_between_containers_of_a_gang_stays_and_its_bridge_leads_nowhere_else(
    held: Agent, engine: docker.DockerClient, spec: Make, listening: Callable[..., None]
) -> None:
    first, second = (spec(network=network(rank)) for rank in range(2))
    with held.client() as client:
        for each in (first, second):
            launch(client, each)
    listening(pid_of(engine, second), 5000)
    listening(None, SSH)
    bridge = gang_network.bridge_of(network(0).number)
    assert reached(engine, first, f"tcp,{network(1).address},5000")
    speak_ipv6(engine, first, "eth1")
    link = f"tcp,{link_local(run('ip', '-j', '-6', 'address', 'show', 'dev', bridge))}%eth1,{SSH}"
    soon(lambda: unheld(engine, first, link), {link})
    soon(lambda: reached(engine, first, link), set())


def test_a_node_that_cannot_keep_sessions_apart_says_so_and_starts_nothing(
    held: Agent, fake_api: FakeApi, spec: Make
) -> None:
    fake_api.wait(lambda heartbeat: not heartbeat.node_info.unready)
    held.stop()
    # a program of that name which the kernel refuses, as where nftables is missing
    programs = held.log.parent / "programs"
    programs.mkdir()
    (programs / "nft").write_text("#!/bin/sh\necho 'Operation not supported' >&2\nexit 1\n")
    (programs / "nft").chmod(0o755)
    path, fake_api.heartbeats[:] = held.environment["PATH"], []
    held.environment["PATH"] = f"{programs}:{path}"
    held.start()
    told = fake_api.wait(lambda heartbeat: bool(heartbeat.node_info.unready)).node_info.unready
    assert "sessions cannot be kept apart" in told
    assert "Operation not supported" in told
    with held.client() as client:
        answer = put(client, one := spec())
        assert answer.status_code == 409, answer.text
        assert told in answer.text
        # mended while the agent runs
        (programs / "nft").unlink()
        fake_api.heartbeats.clear()
        fake_api.wait(lambda heartbeat: not heartbeat.node_info.unready)
        assert launch(client, one).status is ContainerStatus.RUNNING


def test_what_verification_tries_from_inside_a_container(
    held: Agent, other_node: OtherNode, engine: docker.DockerClient, listening: Callable[..., None]
) -> None:
    listening(other_node.name, EDGE, SSH)
    ways = {"ways": [f"{OtherNode.there}:{EDGE}", f"{OtherNode.there}:{SSH}"], "own_port": held.port}
    found = session_ways.look(ways, said)
    assert not found["detail"]
    assert {way for way, told in found["tried"].items() if not told["container"]} == {f"{OtherNode.there}:{EDGE}"}
    answering = {way for way, told in found["tried"].items() if not told["node"]}
    assert len(answering) >= 4, "both ports of the other node, a container, and the agent"
    agent = {way for way in answering if way.endswith(f":{held.port}")}
    held.stop()
    flush()
    found = session_ways.look(ways, said)
    plain = {way: told for way, told in found["tried"].items() if "%" not in way}
    assert {way for way, told in plain.items() if not told["container"]} >= answering & plain.keys() - agent
    assert not engine.containers.list(all=True)
    assert not [tag for image in engine.images.list() for tag in image.tags if "verify" in tag]


def said(*command: str) -> tuple[int, str]:
    """Run a program as a module of a role does."""
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    return ended.returncode, (ended.stdout if ended.returncode == 0 else ended.stdout + ended.stderr).strip()
