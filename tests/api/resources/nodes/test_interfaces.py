"""The network interface of a node by which its containers meet those of others: chosen, kept, and used."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from sqlalchemy import event

from api.resources.sessions import networks
from common.interfaces import Interface
from common.protocol import HEARTBEAT_PATH, PROTOCOL_HEADER, ContainerSpec, GpuDevice
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.api.steps import run
from tests.fakes.heartbeats import beat
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

NODES = {"one": "1", "two": "2"}


def of(number: str) -> list[Interface]:
    """Return the interfaces of a node: one by which it is called, a fast one, and one without an address."""
    return [
        Interface(name="eth0", addresses=[IPv4Address(f"10.0.0.{number}")], up=True, speed_mbps=1000, mtu=1500),
        Interface(name="eth2", addresses=[IPv4Address(f"10.1.0.{number}")], up=True, speed_mbps=100000, mtu=9000),
        Interface(name="eth3"),
    ]


async def report(cluster: Cluster, name: str, interfaces: list[Interface]) -> None:
    gpus = [GpuDevice(index=index, uuid=f"GPU-{name}-{index}", model="A100", memory_mib=40960) for index in range(4)]
    running = [state for (node, _), state in cluster.engine.containers.items() if node == name]
    told = beat(next(cluster.sequences), name=name, containers=running)
    info = told.node_info.model_copy(update={"gpus": gpus, "interfaces": interfaces})
    told = told.model_copy(update={"node_info": info, "address": f"10.0.0.{NODES[name]}"})
    headers = {"X-Client-Verify": "SUCCESS", "X-Client-Name": name, PROTOCOL_HEADER: "1"}
    async with cluster.client(**headers) as agent:
        answer = await agent.post(HEARTBEAT_PATH, json=told.model_dump(mode="json"))
    assert answer.status_code == 200, answer.text
    await cluster.settle()


@pytest.fixture
async def pair(cluster: Cluster) -> Cluster:
    """Two nodes of four GPUs, with three interfaces each."""
    await cluster.add_image()
    await cluster.add_project("team-a", 16000)
    for name, number in NODES.items():
        await report(cluster, name, of(number))
    return cluster


async def choose(cluster: Cluster, node: str, interface: str) -> dict[str, Any]:
    chosen: dict[str, Any] = await ok(cluster.admin.patch(f"{V1}/nodes/{node}", json={"interface": interface}))
    return chosen


async def specs(cluster: Cluster, name: str) -> dict[str, ContainerSpec]:
    """Run a session of two containers, one on each node; returns what agents were asked for, by node."""
    session = await run(cluster, name, replicas=2, gpu_milli=3000)
    assert sorted(each["node"] for each in session["containers"]) == ["one", "two"]
    ids = {
        each["node"]: f"session-{session['id']}-{session['attempt']}-{each['rank']}" for each in session["containers"]
    }
    return {node: cluster.engine.specs[id_] for node, id_ in ids.items()}


async def test_the_interfaces_of_a_node_are_listed(pair: Cluster) -> None:
    shown = await ok(pair.admin.get(f"{V1}/nodes/one"))
    assert shown["interfaces"] == [each.model_dump(mode="json") for each in of("1")]
    assert shown["interface"] == ""


async def test_sessions_meet_by_the_address_of_the_node_where_none_is_chosen(pair: Cluster) -> None:
    asked = await specs(pair, "gang")
    assert {node: (each.network.peers, each.network.local) for node, each in asked.items() if each.network} == {
        "one": (["10.0.0.2"], ""),
        "two": (["10.0.0.1"], ""),
    }
    assert not [each for each in asked.values() if "PENSTOCK_INTERFACE" in each.environment]


async def test_sessions_meet_by_the_interfaces_that_were_chosen(pair: Cluster) -> None:
    for name in NODES:
        assert (await choose(pair, name, "eth2"))["interface"] == "eth2"
    asked = await specs(pair, "gang")
    assert {node: (each.network.peers, each.network.local) for node, each in asked.items() if each.network} == {
        "one": (["10.1.0.2"], "10.1.0.1"),
        "two": (["10.1.0.1"], "10.1.0.2"),
    }
    assert {each.environment["PENSTOCK_INTERFACE"] for each in asked.values()} == {"eth2"}


async def test_what_is_asked_of_an_agent_stays_the_same_when_another_interface_is_chosen(pair: Cluster) -> None:
    before = await specs(pair, "gang")
    await choose(pair, "one", "eth2")
    for name, number in NODES.items():
        await report(pair, name, of(number))
    session = await pair.session("gang")
    ids = [f"session-{session['id']}-{session['attempt']}-{rank}" for rank in range(2)]
    assert {pair.engine.specs[id_].id: pair.engine.specs[id_] for id_ in ids} == {
        each.id: each for each in before.values()
    }


async def test_a_choice_survives_reports_and_an_interface_that_is_gone_for_a_while(pair: Cluster) -> None:
    await choose(pair, "one", "eth2")
    await report(pair, "one", of("1")[:1])
    shown = await ok(pair.admin.get(f"{V1}/nodes/one"))
    assert (shown["interface"], [each["name"] for each in shown["interfaces"]]) == ("eth2", ["eth0"])
    asked = await specs(pair, "gang")
    assert asked["two"].network
    assert asked["two"].network.peers == ["10.0.0.1"], "by the node's own address"
    await report(pair, "one", of("1"))
    assert (await ok(pair.admin.get(f"{V1}/nodes/one")))["interface"] == "eth2"


@pytest.mark.parametrize(("interface", "why"), [("eth9", "is no network interface"), ("eth3", "has no IPv4 address")])
async def test_what_is_no_interface_with_an_address_is_refused_with_the_list(
    pair: Cluster, interface: str, why: str
) -> None:
    refusal = await refused(pair.admin.patch(f"{V1}/nodes/one", json={"interface": interface}), 422)
    assert refusal["where"] == "interface"
    assert why in refusal["reason"]
    assert refusal["hint"] == "choose one of eth0 (10.0.0.1), eth2 (10.1.0.1)"


async def test_a_node_whose_agent_tells_of_none_says_so(ready: Cluster) -> None:
    answer = await ready.admin.patch(f"{V1}/nodes/worker1", json={"interface": "eth0"})
    assert answer.status_code == 422
    assert "is it up to date" in answer.text


async def test_a_choice_is_taken_back(pair: Cluster) -> None:
    await choose(pair, "one", "eth2")
    assert (await choose(pair, "one", ""))["interface"] == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.3.1", "255.255.255.255"])
async def test_an_address_at_which_no_other_node_can_call_is_none(pair: Cluster, address: str) -> None:
    await report(pair, "one", [Interface(name="usb0", addresses=[IPv4Address(address)]), *of("1")])
    refusal = await refused(pair.admin.patch(f"{V1}/nodes/one", json={"interface": "usb0"}), 422)
    assert "has no IPv4 address" in refusal["reason"]


@pytest.mark.parametrize("address", ["10.0.0.2", "10.1.0.2"])
async def test_an_address_that_another_node_has_is_refused(pair: Cluster, address: str) -> None:
    """As all machines have one to their own virtual machines, or to what looks after their hardware."""
    await report(pair, "one", [Interface(name="virbr0", addresses=[IPv4Address(address)]), *of("1")])
    refusal = await refused(pair.admin.patch(f"{V1}/nodes/one", json={"interface": "virbr0"}), 422)
    assert refusal["where"] == "interface"
    assert refusal["reason"] == f"one: virbr0 has {address}, as two has"
    assert (await ok(pair.admin.get(f"{V1}/nodes/one")))["interface"] == ""


async def test_whoever_does_not_see_the_other_node_does_not_hear_its_name(pair: Cluster) -> None:
    await report(pair, "one", [Interface(name="virbr0", addresses=[IPv4Address("10.1.0.2")]), *of("1")])
    await ok(pair.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await ok(pair.admin.post(f"{V1}/resource-groups", json={"name": "theirs", "nodes": ["one"], "domain": "acme"}))
    boss = {"name": "boss", "password": PASSWORD, "role": "admin", "domain": "acme"}
    await ok(pair.admin.post(f"{V1}/users", json=boss))
    async with pair.client() as browser:
        await sign_in(browser, "boss")
        assert (await browser.get(f"{V1}/nodes/two")).status_code == 404
        refusal = await refused(browser.patch(f"{V1}/nodes/one", json={"interface": "virbr0"}), 422)
    assert refusal["reason"] == "one: virbr0 has 10.1.0.2, as another node has"
    assert refusal["hint"] == "choose one whose address no other node has"


async def test_of_all_nodes_with_a_choice_only_that_is_read(pair: Cluster) -> None:
    """A cycle asks for the addresses of all of them."""
    for name in NODES:
        await choose(pair, name, "eth2")
    statements = list[str]()

    def note(*told: Any) -> None:
        statements.append(told[2])

    event.listen(pair.database.engine.sync_engine, "before_cursor_execute", note)
    try:
        async with pair.database.reading() as db:
            room = await networks.room(db, IPv4Network("10.1.0.0/24"))
    finally:
        event.remove(pair.database.engine.sync_engine, "before_cursor_execute", note)
    assert room.free == room.count - 1, "that in which the chosen addresses lie"
    assert not [each for each in statements if "nodes.machine" in each]
