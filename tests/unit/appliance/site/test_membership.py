"""Machines that join a site as workers, and workers that leave it; playbooks are played here."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from appliance.site import departure, expected_gpus, membership, playbook
from appliance.site.membership import Joining, Machine
from appliance.site.playbook import Result
from appliance.site.site_file import load
from common.errors import ConflictError, InputError, UnavailableError
from common.yaml_document import parse

TEXT = """\
name: lab
nodes:
  - {name: m1, address: 10.0.0.1, roles: [reservoir, master]}
  - {name: w1, address: 10.0.0.2, roles: [worker], agent_port: 6001, gpus: {count: 8}}
  - {name: both, address: 10.0.0.3, roles: [worker, storage], agent_port: 6001}
"""
SITE = load(parse(TEXT, "site.yml"))
FACTS: dict[str, Any] = {
    "ansible_hostname": "Node7",
    "ansible_distribution_release": "trixie",
    "ansible_interfaces": ["lo", "ib0", "eno1", "br-lan", "vethb2d3"],
    "ansible_lo": {"device": "lo", "type": "loopback", "active": True, "mtu": 65536, "ipv4": {"address": "127.0.0.1"}},
    "ansible_eno1": {
        "device": "eno1",
        "type": "ether",
        "macaddress": "b8:ce:f6:00:00:01",
        "mtu": 9000,
        "speed": 10000,
        "active": True,
        "ipv4": {"address": "10.0.0.7", "prefix": "24"},
        "ipv4_secondaries": [{"address": "10.0.9.7", "prefix": "24"}],
    },
    "ansible_ib0": {
        "device": "ib0",
        "type": "infiniband",
        "mtu": 2044,
        "speed": 100000,
        "active": True,
        "ipv4": {"address": "10.10.0.7"},
    },
    "ansible_br_lan": {"device": "br-lan", "type": "bridge", "mtu": 1500, "speed": -1, "active": False},
    "ansible_vethb2d3": {"device": "vethb2d3", "type": "ether", "mtu": 1500, "speed": 10000, "active": True},
    "ansible_default_ipv4": {"interface": "eno1", "address": "10.0.0.7"},
}


class Played:
    """How playbooks were run, and what they say."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.published: dict[str, dict[str, Any]] = {}

    def run(self, name: str, hosts: dict[str, Any], **options: Any) -> Result:
        self.ran.append((name, hosts["all"], options))
        return Result(name, log=Path("log"), published=self.published)

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.ran]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    monkeypatch.setattr(playbook, "run", played.run)
    monkeypatch.setattr(membership, "require_controller", lambda _: None)
    return played


@pytest.fixture
def machine(played: Played, tmp_path: Path) -> Machine:
    played.published = {membership.ASKED: {membership.FACTS: FACTS}}
    return membership.ask(SITE, IPv4Address("10.0.0.7"), lambda _: None, state=tmp_path / "state")


def join(machine: Machine, address: str = "10.0.0.7", **more: Any) -> membership.Changed:
    return membership.joined(TEXT, "site.yml", machine, Joining(IPv4Address(address), **more))


def test_a_machine_is_asked_as_the_site_reaches_its_nodes_and_nothing_is_changed(
    machine: Machine, played: Played
) -> None:
    ((name, hosts, options),) = played.ran
    assert (name, options["check"]) == ("interfaces", True)
    assert hosts["hosts"]["machine"]["ansible_host"] == "10.0.0.7"
    assert "StrictHostKeyChecking=accept-new" in hosts["hosts"]["machine"]["ansible_ssh_common_args"]
    assert (machine.hostname, machine.release) == ("node7", "trixie")
    told = [(each.name, each.kind, each.mtu, each.speed_mbps, each.up, each.addresses) for each in machine.interfaces]
    assert told == [
        ("br-lan", "bridge", 1500, None, False, []),
        ("eno1", "ether", 9000, 10000, True, ["10.0.0.7", "10.0.9.7"]),
        ("ib0", "infiniband", 2044, 100000, True, ["10.10.0.7"]),
    ]


def test_it_joins_by_its_own_name_or_another_one(machine: Machine) -> None:
    changed = join(machine)
    node = changed.site.nodes[-1]
    assert (changed.node, str(node.address), node.release, node.agent_port) == ("node7", "10.0.0.7", "trixie", 6001)
    assert (node.roles, node.ib_address, node.gpus) == (["worker"], None, None)
    assert changed.text.startswith(TEXT)
    changed = join(machine, name="w2", agent_port=6100, ib_interface="ib0", gpus=8, gpu_model="H100")
    node = changed.site.nodes[-1]
    assert (node.name, node.agent_port, str(node.ib_address)) == ("w2", 6100, "10.10.0.7")
    assert node.gpus is not None
    assert (node.gpus.count, node.gpus.model) == (8, "H100")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"address": "10.0.0.8"}, r"ADDRESS: no interface of node7 has the address 10\.0\.0\.8.*10\.0\.0\.7, 10\.0\.9"),
        ({"ib_interface": "ib7"}, r"--ib-interface: node7 has no interface ib7.*name one of eno1, ib0"),
        ({"ib_interface": "br-lan"}, r"--ib-interface: node7 has no interface br-lan with an address"),
        ({"name": "w1"}, r"w1 is also nodes\[1\]\.name"),
        ({"name": "W_2"}, r"nodes\[3\]\.name"),
    ],
)
def test_what_cannot_join_is_told_why(machine: Machine, more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        join(machine, **more)


def test_a_machine_of_another_system_does_not_join(machine: Machine) -> None:
    other = Machine(machine.hostname, "jammy", machine.interfaces)
    with pytest.raises(InputError, match=r"nodes\[3\]\.release"):
        join(other)


def test_a_worker_leaves_the_file_and_what_others_need_does_not() -> None:
    changed = membership.left(TEXT, "site.yml", "w1")
    assert [node.name for node in changed.site.nodes] == ["m1", "both"]
    with pytest.raises(InputError, match="both is storage of the site, too"):
        membership.left(TEXT, "site.yml", "both")
    with pytest.raises(InputError, match="m1 is reservoir and master of the site, too"):
        membership.left(TEXT, "site.yml", "m1")
    with pytest.raises(InputError, match="the site has no node 'w7'"):
        membership.left(TEXT, "site.yml", "w7")


def test_another_machine_takes_the_place_of_a_worker_of_its_release(machine: Machine) -> None:
    address = IPv4Address("10.0.0.7")
    with pytest.raises(InputError, match="node7 runs trixie, and w1 bookworm"):
        membership.moved(TEXT, "site.yml", machine, "w1", address)
    same = Machine(machine.hostname, "bookworm", machine.interfaces)
    changed = membership.moved(TEXT, "site.yml", same, "w1", address)
    assert changed.text == TEXT.replace("10.0.0.2", "10.0.0.7")
    with pytest.raises(InputError, match="no interface of node7 has the address"):
        membership.moved(TEXT, "site.yml", same, "w1", IPv4Address("10.0.0.8"))
    with pytest.raises(InputError, match="both is storage"):
        membership.moved(TEXT, "site.yml", same, "both", address)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"nodes": [], "error": ""}, "the API has heard nothing of its agent"),
        ({"nodes": [], "error": "no way to the database"}, "does not say how it is: no way to the database"),
        (
            {"nodes": [{"name": "w1", "state": "unready", "message": "no Docker", "mode": "active"}], "error": ""},
            "it is unready: no Docker",
        ),
    ],
)
def test_a_node_that_does_not_get_ready_is_an_attach_error(
    played: Played, tmp_path: Path, found: dict[str, Any], said: str
) -> None:
    played.published = {"m1": {expected_gpus.FOUND: found}}
    with pytest.raises(UnavailableError, match=f"w1: Attach Error: .*{said}.*deploy --limit w1"):
        membership.attach(SITE, "w1", lambda _: None, state=tmp_path)


def test_a_node_that_is_ready_says_its_mode(played: Played, tmp_path: Path) -> None:
    node = {"name": "w1", "state": "ready", "message": "", "mode": "maintenance"}
    played.published = {"m1": {expected_gpus.FOUND: {"nodes": [node], "error": ""}}}
    assert membership.attach(SITE, "w1", lambda _: None, state=tmp_path) == "maintenance"
    ((name, hosts, options),) = played.ran
    assert (name, options["check"], hosts["vars"]["nodes_joining"]) == ("attachment", True, ["w1"])
    assert hosts["children"]["attachment"] == {"hosts": {"m1": {}}}


def detach(tmp_path: Path, **options: bool) -> None:
    after = membership.left(TEXT, "site.yml", "w1").site
    membership.detach(SITE, after, "w1", lambda _: None, state=tmp_path, **options)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    busy = {"w1": False}

    def close(site: Any, *_: Any) -> list[str]:
        assert "w1" not in {node.name for node in site.nodes}
        if busy["w1"]:
            raise ConflictError("2 sessions run on it", where="w1")
        return ["w1"]

    monkeypatch.setattr(departure, "close", close)
    return busy


def test_a_node_that_leaves_is_closed_before_its_agent_ends(
    played: Played, busy: dict[str, bool], tmp_path: Path
) -> None:
    detach(tmp_path)
    ((name, hosts, options),) = played.ran
    assert (name, options["limit"]) == ("detachment", ["w1"])
    assert hosts["children"]["detachment"] == {"hosts": {"w1": {}}}
    busy["w1"] = True
    with pytest.raises(ConflictError, match="2 sessions run on it"):
        detach(tmp_path)
    assert played.names == ["detachment"], "its agent goes on"


def test_a_machine_that_is_gone_is_not_asked(played: Played, busy: dict[str, bool], tmp_path: Path) -> None:
    assert not busy["w1"]
    detach(tmp_path, gone=True)
    assert played.names == []
