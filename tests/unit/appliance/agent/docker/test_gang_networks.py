"""The networks between the containers of a session, on one node."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from pydantic import ValidationError

from appliance.agent.docker import containers, gang_network, inspections
from appliance.agent.docker.gang_network_manager import GangNetworkManager
from common.errors import ConflictError, InputError, PenstockError, UnavailableError
from common.protocol import ContainerSpec, GangNetwork
from tests.fakes.node_networks import NodeNetworks, gang_networks

SUBNET = IPv4Network("100.96.0.32/27")
HOSTS = {f"train-{rank}": SUBNET[2 + rank] for rank in range(3)}


def network(rank: int = 0, number: int = 7, peers: tuple[str, ...] = (), **changes: Any) -> GangNetwork:
    """Return the network as one container of a session of three has it."""
    name = f"train-{rank}"
    wanted: dict[str, Any] = {"number": number, "subnet": SUBNET, "address": HOSTS[name], "name": name, "hosts": HOSTS}
    return GangNetwork.model_validate({**wanted, "peers": list(peers), **changes})


def spec(**changes: Any) -> ContainerSpec:
    wanted: dict[str, Any] = {"id": "c0", "session_id": "s", "session_name": "train", "project": "p", "user": "u"}
    return ContainerSpec.model_validate({**wanted, "image": "i", **changes})


def inspection(
    given: GangNetwork | None, *networks: str, started: str = "2026-01-02T03:04:05Z"
) -> inspections.Inspection:
    """Return what Docker tells of a container that is on some networks."""
    labels = containers.creation(spec(network=given))["labels"]
    on = {name: {"IPAddress": ""} for name in networks}
    return {"Config": {"Labels": labels}, "State": {"StartedAt": started}, "NetworkSettings": {"Networks": on}}


@pytest.fixture
def node() -> NodeNetworks:
    return NodeNetworks()


@pytest.fixture
def keeper(node: NodeNetworks) -> GangNetworkManager:
    return gang_networks(node)


def test_a_session_on_one_node_meets_on_a_bridge_without_a_way_out(
    node: NodeNetworks, keeper: GangNetworkManager
) -> None:
    keeper.join("c0", network(0))
    keeper.join("c1", network(1))
    made = node.docker["penstock-gang-7"]
    assert made["Options"]["com.docker.network.bridge.name"] == "psg-7"
    assert made["Options"]["com.docker.network.bridge.inhibit_ipv4"] == "true"
    assert made["IPAM"]["Config"] == [{"Subnet": "100.96.0.32/27"}]
    assert gang_network.creation(network(), 1500)["internal"]
    assert node.connected == {"c0": ("penstock-gang-7", "100.96.0.34"), "c1": ("penstock-gang-7", "100.96.0.35")}
    assert not node.links


def test_a_single_container_has_no_such_network(node: NodeNetworks, keeper: GangNetworkManager) -> None:
    keeper.join("c0", None)
    assert not node.docker
    assert containers.creation(spec())["hostname"] == "train"


def test_other_nodes_are_reached_by_a_vxlan_of_the_networks_number(
    node: NodeNetworks, keeper: GangNetworkManager
) -> None:
    keeper.join("c0", network(peers=("192.0.2.2", "192.0.2.3")))
    link = node.links["psx-7"]
    assert link["master"] == "psg-7"
    assert link["linkinfo"]["info_data"] == {"id": 7, "local": "192.0.2.1", "port": 4789}
    assert node.sends_to["psx-7"] == ["192.0.2.2", "192.0.2.3"]


@pytest.mark.parametrize(("way", "left"), [(1500, 1450), (9000, 8950)])
def test_packets_leave_room_for_what_the_vxlan_adds(way: int, left: int) -> None:
    node = NodeNetworks(mtu=way)
    gang_networks(node).join("c0", network(peers=("192.0.2.2",)))
    assert node.docker["penstock-gang-7"]["Options"]["com.docker.network.driver.mtu"] == str(left)
    assert node.links["psx-7"]["mtu"] == left


@pytest.mark.parametrize(("wanted", "left"), [(1400, 1400), (8950, 8950), (9000, 8950)])
def test_packets_are_as_large_as_the_site_wants_where_so_much_fits(wanted: int, left: int) -> None:
    node = NodeNetworks(mtu=9000)
    gang_networks(node, mtu=wanted).join("c0", network(peers=("192.0.2.2",)))
    assert node.docker["penstock-gang-7"]["Options"]["com.docker.network.driver.mtu"] == str(left)
    assert node.links["psx-7"]["mtu"] == left
    alone = NodeNetworks(mtu=1500)
    gang_networks(alone, mtu=wanted).join("c0", network())
    assert alone.docker["penstock-gang-7"]["Options"]["com.docker.network.driver.mtu"] == str(wanted), "no way out"


def test_names_of_network_devices_are_as_short_as_the_kernel_wants_them() -> None:
    assert max(len(gang_network.bridge_of((1 << 24) - 1)), len(gang_network.link_of((1 << 24) - 1))) <= 15


def test_joining_again_changes_nothing(node: NodeNetworks, keeper: GangNetworkManager) -> None:
    for _ in range(2):
        keeper.join("c0", network(peers=("192.0.2.2",)))
    assert node.sends_to["psx-7"] == ["192.0.2.2"]


def test_the_network_is_taken_down_after_the_last_container_of_the_node(
    node: NodeNetworks, keeper: GangNetworkManager
) -> None:
    for rank in range(2):
        keeper.join(f"c{rank}", network(rank, peers=("192.0.2.2",)))
    keeper.leave("c0")
    assert node.docker
    assert node.links
    keeper.leave("c1")
    assert not node.docker
    assert not node.links


def test_a_started_agent_takes_down_what_nobody_is_on(node: NodeNetworks) -> None:
    gang_networks(node).join("c0", network(number=7, peers=("192.0.2.2",)))
    gang_networks(node).join("c1", network(number=8, peers=("192.0.2.2",)))
    del node.docker["penstock-gang-8"]
    gang_networks(node).recover({}, lambda _: False)
    assert not node.docker
    assert not node.links


def test_a_started_agent_mends_the_networks_of_those_who_run(node: NodeNetworks) -> None:
    given = network(peers=("192.0.2.2", "192.0.2.3"))
    gang_networks(node).join("c0", given)
    node.sends_to["psx-7"] = ["192.0.2.3", "192.0.2.9"]
    again = gang_networks(node)
    again.recover({"c0": given}, lambda _: True)
    assert node.sends_to["psx-7"] == ["192.0.2.3", "192.0.2.2"]
    del node.links["psx-7"]["master"]
    again.recover({"c0": given}, lambda _: True)
    assert node.links["psx-7"]["master"] == "psg-7"
    again.leave("c0")
    assert not node.docker


def test_a_container_on_its_way_to_docker_keeps_its_network(node: NodeNetworks, keeper: GangNetworkManager) -> None:
    keeper.join("c0", network())
    keeper.recover({}, lambda identity: identity == "c0")
    assert node.docker
    keeper.recover({}, lambda _: False)
    assert not node.docker


def test_a_container_that_went_while_docker_told_of_it_keeps_no_network(
    node: NodeNetworks, keeper: GangNetworkManager
) -> None:
    keeper.join("c0", network())
    keeper.leave("c0")
    keeper.recover({"c0": network()}, lambda _: False)
    assert not node.docker
    keeper.join("c1", network(hosts={"other-0": HOSTS["train-0"]}, name="other-0"))
    keeper.leave("c1")
    assert not node.docker


def test_two_sessions_never_meet_on_one_network(node: NodeNetworks, keeper: GangNetworkManager) -> None:
    keeper.join("late", network(hosts={"late-0": HOSTS["train-0"]}, name="late-0"))
    with pytest.raises(ConflictError, match="another session"):
        keeper.join("c0", network(1))
    assert node.connected.keys() == {"late"}
    keeper.leave("late")
    keeper.join("c0", network(1))
    assert node.connected["c0"] == ("penstock-gang-7", "100.96.0.35")


def test_what_a_session_before_left_of_the_same_number_makes_way(node: NodeNetworks) -> None:
    other = IPv4Network("10.1.0.0/27")
    hosts = {"old-0": other[2]}
    gang_networks(node).join("old", GangNetwork(number=7, subnet=other, address=other[2], name="old-0", hosts=hosts))
    gang_networks(node).join("c0", network())
    assert node.docker["penstock-gang-7"]["IPAM"]["Config"] == [{"Subnet": "100.96.0.32/27"}]


def test_a_network_in_use_stays_and_is_tried_again(node: NodeNetworks, keeper: GangNetworkManager) -> None:
    keeper.join("c0", network())
    node.in_use.add("penstock-gang-7")
    keeper.leave("c0")
    assert node.docker
    node.in_use.clear()
    keeper.join("c1", network(number=8, subnet="100.96.0.32/27"))
    keeper.leave("c1")
    assert not node.docker


def test_an_agent_starts_where_the_kernel_refuses_and_a_launch_says_why(
    node: NodeNetworks, keeper: GangNetworkManager
) -> None:
    node.refuses = UnavailableError("there is no program bridge")
    keeper.recover({}, lambda _: True)
    with pytest.raises(PenstockError, match="no program bridge"):
        keeper.join("c0", network(peers=("192.0.2.2",)))


def test_nodes_without_an_ipv4_address_are_refused() -> None:
    with pytest.raises(InputError, match=r"worker2\.site is no IPv4 address") as refused:
        gang_network.check(network(peers=("192.0.2.2", "worker2.site", "2001:db8::1")))
    assert [problem.where for problem in refused.value.problems] == ["network.peers.1", "network.peers.2"]


def test_a_network_fits_together() -> None:
    with pytest.raises(ValidationError, match="train-0 is not at"):
        network(address=IPv4Address("100.96.0.50"))
    with pytest.raises(ValidationError, match="outside of"):
        network(subnet=IPv4Network("100.96.1.0/27"))


def test_a_container_knows_the_others_by_name_and_its_interface() -> None:
    made = containers.creation(spec(network=network(1), environment={"GLOO_SOCKET_IFNAME": "lo"}))
    assert made["hostname"] == "train-1"
    assert made["host_config"]["ExtraHosts"] == [
        "train-0:100.96.0.34",
        "train-1:100.96.0.35",
        "train-2:100.96.0.36",
    ]
    assert made["environment"]["NCCL_SOCKET_IFNAME"] == "eth1"
    assert made["environment"]["GLOO_SOCKET_IFNAME"] == "lo"


def test_the_agent_finds_a_containers_network_in_its_labels() -> None:
    assert inspections.network_of(inspection(network(2), "bridge", "penstock-gang-7")) == network(2)
    assert inspections.network_of(inspection(None, "bridge")) is None
    made = inspection(network(2), "bridge", started=inspections.NEVER)
    assert inspections.network_of(made) == network(2), "it joins when it is started"


def test_a_label_is_not_believed_of_a_container_that_docker_has_not_put_on_that_network() -> None:
    """An image has it, and an agent of before wrote none of its own."""
    assert inspections.network_of(inspection(network(2), "bridge")) is None
    assert inspections.network_of(inspection(network(2), "bridge", "penstock-gang-8")) is None


def test_a_docker_network_is_ours_by_its_name_not_by_its_label_alone() -> None:
    for name, label in (("penstock-gang-7", "7"), ("somebodys", "7"), ("penstock-gang-7", "x"), ("other", "")):
        ours = gang_network.number_of({"Name": name, "Labels": {gang_network.LABEL: label}})
        assert ours == (7 if (name, label) == ("penstock-gang-7", "7") else None)


def test_one_network_that_cannot_be_mended_leaves_the_others_whole(
    node: NodeNetworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd, given = network(number=6), network(number=7, peers=("192.0.2.2",))
    make_network = node.make_network

    def make(arguments: Mapping[str, Any]) -> None:
        if arguments["name"] == "penstock-gang-6":
            raise ValueError("what nobody expected")
        make_network(arguments)

    monkeypatch.setattr(node, "make_network", make)
    gang_networks(node).recover({"c0": odd, "c1": given}, lambda _: True)
    assert node.sends_to == {"psx-7": ["192.0.2.2"]}


def test_ports_are_reached_by_the_network_that_every_container_has() -> None:
    networks = {"penstock-gang-7": {"IPAddress": "100.96.0.34"}, "bridge": {"IPAddress": "172.17.0.3"}}
    assert inspections.address_of({"NetworkSettings": {"Networks": networks}}) == "172.17.0.3"
    del networks["bridge"]
    assert inspections.address_of({"NetworkSettings": {"Networks": networks}}) == ""


def test_a_network_that_says_from_where_is_sent_from_there(node: NodeNetworks, keeper: GangNetworkManager) -> None:
    keeper.join("c0", network(peers=("10.1.0.2",), local="10.1.0.1"))
    assert node.links["psx-7"]["linkinfo"]["info_data"]["local"] == "10.1.0.1"
    keeper.join("c0", network(peers=("10.1.0.2",), local="10.1.0.1"))
    assert node.sends_to["psx-7"] == ["10.1.0.2"]


@pytest.mark.parametrize(("mtu", "left"), [(9000, 8950), (1400, 1350)])
def test_packets_fit_the_way_that_is_taken_from_there(
    node: NodeNetworks, keeper: GangNetworkManager, mtu: int, left: int
) -> None:
    """Which may be another one than that of the node's own address: with several networks sites route by sources."""
    node.devices["10.1.0.1"], node.mtus["eth2"] = "eth2", mtu
    keeper.join("c0", network(peers=("10.1.0.2",), local="10.1.0.1"))
    assert node.links["psx-7"]["mtu"] == left
    assert node.docker["penstock-gang-7"]["Options"]["com.docker.network.driver.mtu"] == str(left)


def test_a_network_does_not_send_from_an_address_that_the_node_has_lost(
    node: NodeNetworks, keeper: GangNetworkManager
) -> None:
    """The kernel would take it, and the containers would run and never meet."""
    node.addresses.remove("10.1.0.1")
    with pytest.raises(ConflictError, match=r"10\.1\.0\.1 is no address of this node any more") as refused:
        keeper.join("c0", network(peers=("10.1.0.2",), local="10.1.0.1"))
    assert refused.value.problems[0].where == "network.local"
    assert not node.connected
    assert not node.links


def test_a_network_that_is_there_stays_when_the_node_loses_the_address(node: NodeNetworks) -> None:
    given = network(peers=("10.1.0.2",), local="10.1.0.1")
    gang_networks(node).join("c0", given)
    node.addresses.remove("10.1.0.1")
    gang_networks(node).recover({"c0": given}, lambda _: True)
    assert node.sends_to["psx-7"] == ["10.1.0.2"], "it may come back"


def test_what_is_no_address_to_send_from_is_refused() -> None:
    with pytest.raises(InputError, match=r"network\.local"):
        gang_network.check(network(local="fd00::1"))
