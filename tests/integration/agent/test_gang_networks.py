"""Networks between the containers of a session on the real Docker Engine, and the way to another node."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import docker
import pytest

from appliance.agent.docker import containers, egress_rules, gang_network, resolvers
from appliance.agent.docker.containers import ContainerLimits
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.gang_network import BRIDGE_PREFIX, LINK_PREFIX
from appliance.agent.docker.gang_network_manager import GangNetworkManager
from appliance.agent.labels import name_of
from common import process
from common.protocol import ContainerSpec, ContainerStatus, GangNetwork
from tests.integration.agent.calls import launch as launched
from tests.integration.agent.conftest import Agent, Authority, FakeApi, make_agent
from tests.integration.agent.other_node import OtherNode, run
from tests.integration.own_engine import remove_containers

Make = Callable[..., ContainerSpec]
SUBNETS = [IPv4Network("100.127.255.0/27"), IPv4Network("100.127.255.32/27")]
ANSWERS = ["exec nc -ll -p 5000 -e hostname"]


def network(rank: int, which: int = 0, peers: tuple[str, ...] = ()) -> GangNetwork:
    """Return one of two networks, as one of three containers has it."""
    subnet = SUBNETS[which]
    hosts = {f"train-{number}": subnet[2 + number] for number in range(3)}
    number = int(subnet.network_address) >> 5 & 0xFFFFFF
    name = f"train-{rank}"
    return GangNetwork(number=number, subnet=subnet, address=hosts[name], name=name, hosts=hosts, peers=list(peers))


def launch(agent: Agent, spec: ContainerSpec) -> None:
    with agent.client() as client:
        state = launched(client, spec)
    assert state.status is ContainerStatus.RUNNING, state.error


def remove(agent: Agent, *specs: ContainerSpec) -> None:
    with agent.client() as client:
        for spec in specs:
            client.delete(f"/v1/containers/{spec.id}", params={"grace_s": 0}).raise_for_status()


def inside(engine: docker.DockerClient, spec: ContainerSpec, *command: str) -> str:
    """Return what a command in a container prints."""
    output = engine.containers.get(f"penstock-{spec.id}").exec_run(list(command), stderr=False).output
    assert isinstance(output, bytes)
    return output.decode().strip()


def asked(engine: docker.DockerClient, spec: ContainerSpec, host: str, port: int = 5000) -> str:
    """Return what a host answers to a container; empty where it does not."""
    return inside(engine, spec, "sh", "-c", f"nc -w 2 {host} {port} < /dev/null")


def soon(look: Callable[[], Any], wanted: Any) -> None:
    """Wait until a look finds what is wanted."""
    deadline = time.monotonic() + 60
    while (found := look()) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def left(engine: docker.DockerClient) -> list[str]:
    """Return the networks and network devices of sessions that this machine has."""
    shown = json.loads(run("ip", "-j", "link", "show"))
    devices = [each["ifname"] for each in shown if each["ifname"].startswith((BRIDGE_PREFIX, LINK_PREFIX))]
    return [str(each.name) for each in engine.networks.list(filters={"label": gang_network.LABEL})] + devices


@pytest.fixture
def no_networks(engine: docker.DockerClient) -> Iterator[None]:
    """Leave nothing behind, whatever a test comes to."""
    yield
    for each in engine.networks.list(filters={"label": gang_network.LABEL}):
        each.remove()


@pytest.mark.usefixtures("no_networks")
def test_containers_of_a_session_reach_each_other_by_name_and_nobody_else_does(
    agent: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    first, second = (spec(command=["sh", "-c"], args=ANSWERS, network=network(rank)) for rank in range(2))
    other = spec(command=["sh", "-c"], args=ANSWERS, network=network(0, which=1))
    alone = spec(command=["sh", "-c"], args=ANSWERS)
    for each in (first, second, other, alone):
        launch(agent, each)
    soon(lambda: asked(engine, first, "train-1"), "train-1")
    soon(lambda: asked(engine, second, "train-0"), "train-0")
    soon(lambda: asked(engine, second, str(network(0).address)), "train-0")
    # its own
    soon(lambda: asked(engine, other, "train-0"), "train-0")
    for stranger in (other, alone):
        assert not asked(engine, stranger, str(network(0).address))
    # the node itself has no address on the network
    assert not [each for each in json.loads(run("ip", "-j", "route")) if each["dst"] == str(SUBNETS[0])]


@pytest.mark.usefixtures("no_networks")
def test_the_interface_is_the_one_that_programs_are_told(agent: Agent, engine: docker.DockerClient, spec: Make) -> None:
    one = spec(network=network(1))
    launch(agent, one)
    told = inside(engine, one, "sh", "-c", "echo $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $HOSTNAME")
    assert told.split() == ["eth1", "eth1", "train-1"]
    assert "100.127.255.3/27" in inside(engine, one, "/bin/busybox", "ip", "-4", "addr", "show", "dev", "eth1")
    assert inside(engine, one, "hostname", "-i").split()[0] == "100.127.255.3"
    assert "dev eth0" in inside(engine, one, "/bin/busybox", "ip", "route", "show", "default")


@pytest.mark.usefixtures("no_networks")
def test_no_server_is_asked_from_the_node_in_its_place(agent: Agent, engine: docker.DockerClient, spec: Make) -> None:
    one = spec(network=network(1))
    launch(agent, one)
    told = engine.containers.get(f"penstock-{one.id}").attrs["HostConfig"]["Dns"]
    assert told
    assert told == resolvers.of_node()
    assert "host(" not in inside(engine, one, "cat", "/etc/resolv.conf")


@pytest.mark.usefixtures("no_networks")
def test_a_network_goes_with_the_last_container_and_an_agent_that_was_killed_forgets_none(
    agent: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    specs = [spec(command=["sh", "-c"], args=ANSWERS, network=network(rank)) for rank in range(2)]
    for each in specs:
        launch(agent, each)
    assert agent.process is not None
    agent.process.kill()
    agent.process.wait()
    engine.containers.get(f"penstock-{specs[0].id}").remove(force=True)
    agent.start()
    assert len(left(engine)) == 2, "a network and its bridge"
    remove(agent, specs[1])
    assert not left(engine)


def test_an_agent_that_was_killed_between_making_and_starting_goes_on(
    agent: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    first = spec(command=["sh", "-c"], args=ANSWERS, network=network(0))
    launch(agent, first)
    agent.stop()
    made = engine.containers.get(f"penstock-{first.id}")
    made.remove(force=True)
    # as a container is that Docker has made and that nobody has put on its network, nor started
    labels, image = made.labels, made.attrs["Config"]["Image"]
    hosts = {name: str(address) for name, address in network(0).hosts.items()}
    for old in engine.networks.list(filters={"label": gang_network.LABEL}):
        old.remove()
    engine.containers.create(
        image, ["sh", "-c", *ANSWERS], name=f"penstock-{first.id}", labels=labels, extra_hosts=hosts
    )
    agent.start()
    second = spec(command=["sh", "-c"], args=ANSWERS, network=network(1))
    launch(agent, second)
    soon(lambda: bool(asked(engine, second, "train-0")), True)
    remove(agent, first, second)
    assert not left(engine)


class Other(DockerEngine):
    """Another node's Docker Engine, as its agent sees it."""

    def __init__(self, client: docker.DockerClient) -> None:
        self._api = client.api


@pytest.fixture
def reachable_agent(
    authority: Authority, fake_api: FakeApi, tmp_path: Path, run_id: str, engine: docker.DockerClient
) -> Iterator[Agent]:
    """An agent of a node that another one reaches."""
    agent = make_agent(authority, fake_api.port, tmp_path)
    agent.environment["PENSTOCK_AGENT_ADDRESS"] = OtherNode.here
    agent.start()
    yield agent
    agent.stop()
    remove_containers(engine, label=f"io.penstock.user={run_id}")


@pytest.mark.usefixtures("no_networks")
def test_a_container_reaches_one_on_another_node_and_is_reached_from_there(
    other_node: OtherNode, reachable_agent: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    here = spec(command=["sh", "-c"], args=ANSWERS, network=network(0, peers=(OtherNode.there,)))
    stranger = spec(command=["sh", "-c"], args=ANSWERS, network=network(0, which=1, peers=(OtherNode.there,)))
    for each in (here, stranger):
        launch(reachable_agent, each)
    other_node.join(network(1, peers=(OtherNode.here,)))
    answering = other_node.answer(6000, "from-there")
    try:
        soon(lambda: asked(engine, here, "train-1", 6000), "from-there")
        soon(lambda: other_node.ask(str(network(0).address), 5000), "train-0")
        # another session's network has another number, though it leads to the same nodes
        assert not asked(engine, stranger, str(network(1).address), 6000)
        assert not other_node.ask(str(network(0, which=1).address), 5000)
    finally:
        answering.kill()
        answering.wait()
    remove(reachable_agent, here, stranger)
    assert not left(engine)


@pytest.mark.usefixtures("no_networks")
def test_a_way_to_another_node_that_somebody_took_away_is_mended_while_the_agent_runs(
    other_node: OtherNode, reachable_agent: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    reachable_agent.stop()
    reachable_agent.environment["PENSTOCK_AGENT_LIST_INTERVAL_S"] = "0.5"
    reachable_agent.start()
    here = spec(command=["sh", "-c"], args=ANSWERS, network=network(0, peers=(OtherNode.there,)))
    launch(reachable_agent, here)
    other_node.join(network(1, peers=(OtherNode.here,)))
    answering = other_node.answer(6000, "from-there")
    link = gang_network.link_of(network(0).number)
    try:
        soon(lambda: asked(engine, here, "train-1", 6000), "from-there")
        run("ip", "link", "del", link)
        soon(lambda: asked(engine, here, "train-1", 6000), "from-there")
        run("bridge", "fdb", "del", "00:00:00:00:00:00", "dev", link, "dst", OtherNode.there)
        soon(lambda: OtherNode.there in run("bridge", "fdb", "show", "dev", link), True)
        run("nft", "flush", "chain", "inet", egress_rules.TABLE, "sessions")
        soon(lambda: "dport 4789" in run("nft", "list", "table", "inet", egress_rules.TABLE), True)
    finally:
        answering.kill()
        answering.wait()
    remove(reachable_agent, here)
    assert not left(engine)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose name leaves room for those of an engine's sockets: they have 104 characters."""
    with tempfile.TemporaryDirectory(prefix="penstock-gang-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def other_engine(other_node: OtherNode, short_path: Path, engine: docker.DockerClient, image: str) -> Iterator[Path]:
    """The socket of the other node's own Docker Engine, which has the image."""
    socket = short_path / "docker.sock"
    command = ["nsenter", f"--net=/run/netns/{other_node.name}", "dockerd", "--host", f"unix://{socket}"]
    command += ["--data-root", str(short_path / "data"), "--exec-root", str(short_path / "exec")]
    command += ["--pidfile", str(short_path / "pid"), "--storage-driver", "vfs"]
    with (short_path / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not socket.exists() or not _answers(socket):
            assert daemon.poll() is None, (short_path / "dockerd.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        with closing(docker.DockerClient(base_url=f"unix://{socket}")) as client:
            client.images.load(b"".join(engine.images.get(image).save(named=True)))
            yield socket
            remove_containers(client)
    finally:
        daemon.terminate()
        daemon.wait(60)


@pytest.mark.usefixtures("no_networks")
def test_containers_of_two_nodes_with_engines_of_their_own_reach_each_other_by_name(
    other_node: OtherNode, other_engine: Path, reachable_agent: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    here = spec(command=["sh", "-c"], args=ANSWERS, network=network(0, peers=(OtherNode.there,)))
    there = spec(command=["sh", "-c"], args=ANSWERS, network=network(1, peers=(OtherNode.here,)))
    launch(reachable_agent, here)
    with closing(docker.DockerClient(base_url=f"unix://{other_engine}")) as client:
        node = Other(client)
        keeper = GangNetworkManager(
            node, OtherNode.there, lambda command: process.run(("ip", "netns", "exec", other_node.name, *command))
        )
        client.api.create_container(**containers.creation(there, limits=ContainerLimits(memlock=1 << 16)))
        keeper.join(there.id, there.network)
        client.api.start(name_of(there.id))
        soon(lambda: asked(engine, here, "train-1"), "train-1")
        soon(lambda: asked(client, there, "train-0"), "train-0")
        client.containers.get(name_of(there.id)).remove(force=True)
        keeper.leave(there.id)
        assert not node.networks()
        assert "psx-" not in other_node.run("ip", "link")
    remove(reachable_agent, here)
    assert not left(engine)


@pytest.mark.usefixtures("no_networks")
def test_large_data_fit_on_the_way_to_another_node(
    other_node: OtherNode, reachable_agent: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    serves = ["exec nc -ll -p 5000 -e seq 1 200000"]
    here = spec(command=["sh", "-c"], args=serves, network=network(0, peers=(OtherNode.there,)))
    launch(reachable_agent, here)
    other_node.join(network(1, peers=(OtherNode.here,)))
    assert inside(engine, here, "cat", "/sys/class/net/eth1/mtu") == "1450"
    soon(lambda: other_node.ask(str(network(0).address), 5000).splitlines()[-1:], ["200000"])


@pytest.mark.usefixtures("other_node")
def test_a_program_in_a_container_cannot_write_into_the_networks_of_others(
    reachable_agent: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    one = spec()
    launch(reachable_agent, one)
    before = _dropped()
    send = f"/bin/busybox timeout 1 /bin/busybox tftp -g -r x -l /dev/null {OtherNode.there} {gang_network.VXLAN_PORT}"
    inside(engine, one, "sh", "-c", send)
    assert _dropped() > before


@pytest.mark.usefixtures("other_node", "no_networks")
def test_nor_can_it_by_the_bridge_of_its_own_session(
    reachable_agent: Agent, engine: docker.DockerClient, spec: Make
) -> None:
    one = spec(network=network(0))
    launch(reachable_agent, one)
    [device] = json.loads(run("ip", "-j", "link", "show", gang_network.bridge_of(network(0).number)))
    pid = engine.containers.get(f"penstock-{one.id}").attrs["State"]["Pid"]
    # what a program does that writes packets itself: they go to the node's hardware address on the bridge
    there = ("nsenter", f"--net=/proc/{pid}/ns/net", "ip")
    run(*there, "route", "add", OtherNode.here, "dev", gang_network.INTERFACE)
    run(*there, "neigh", "add", OtherNode.here, "lladdr", device["address"], "dev", gang_network.INTERFACE)
    before = _dropped()
    send = f"/bin/busybox timeout 1 /bin/busybox tftp -g -r x -l /dev/null {OtherNode.here} {gang_network.VXLAN_PORT}"
    inside(engine, one, "sh", "-c", send)
    assert _dropped() > before
    remove(reachable_agent, one)


def _answers(socket: Path) -> bool:
    try:
        with closing(docker.DockerClient(base_url=f"unix://{socket}")) as client:
            return bool(client.ping())
    except docker.errors.DockerException:
        return False


def _dropped() -> int:
    """Return how many packets of containers the rules of sessions have dropped."""
    shown = json.loads(run("nft", "--json", "list", "table", "inet", egress_rules.TABLE))["nftables"]
    rules = [each["rule"]["expr"] for each in shown if "rule" in each]
    drops = [part for rule in rules if {"drop": None} in rule for part in rule]
    return sum(part["counter"]["packets"] for part in drops if "counter" in part)
