"""The network interfaces of a node, by what `ip` and the kernel show of them."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from appliance.agent.docker.gang_network import Command
from appliance.agent.docker.interfaces import COMMAND, Interfaces
from common.errors import ProcessError
from common.interfaces import MAX_INTERFACES, Interface

pytestmark = pytest.mark.anyio


def shown(name: str, *addresses: str, state: str = "UP", link_type: str = "ether", **more: Any) -> dict[str, Any]:
    """Return an interface as `ip -j address show` has it."""
    told = [{"family": "inet", "local": each, "prefixlen": 24, "scope": "global"} for each in addresses]
    own = [{"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}]
    about = {"ifname": name, "link_type": link_type, "operstate": state, "mtu": 1500}
    return {**about, "addr_info": [*told, *own], **more}


class Machine:
    """What `ip` shows; it fails where that is None."""

    def __init__(self, *interfaces: dict[str, Any]) -> None:
        self.shown: list[dict[str, Any]] | None = list(interfaces)

    def run(self, command: Command) -> str:
        assert command == COMMAND
        if self.shown is None:
            raise ProcessError("ip failed")
        return json.dumps(self.shown)


def test_interfaces_are_told_with_addresses_state_and_speed(tmp_path: Path) -> None:
    for name, speed in (("eth0", "1000"), ("eth2", "-1")):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
        (tmp_path / "sys/class/net" / name / "speed").write_text(f"{speed}\n")
    machine = Machine(
        shown("eth0", "10.0.0.2", "10.0.0.3"), shown("eth2", state="DOWN", mtu=9000), shown("bond0", "10.1.0.2")
    )
    addresses = [IPv4Address("10.0.0.2"), IPv4Address("10.0.0.3")]
    assert Interfaces(machine.run, tmp_path).found == [
        Interface(
            name="eth0",
            addresses=addresses,
            up=True,
            speed_mbps=1000,
            mtu=1500,
        ),
        Interface(name="eth2", mtu=9000),
        Interface(name="bond0", addresses=[IPv4Address("10.1.0.2")], up=True, mtu=1500),
    ]


def test_those_of_containers_and_the_loopback_are_left_out(tmp_path: Path) -> None:
    names = ("docker0", "br-0a1b2c3d4e5f", "veth12ab", "psg-7", "psx-7")
    machine = Machine(shown("lo", link_type="loopback"), shown("eth0"), *map(shown, names), shown("br0"))
    assert [each.name for each in Interfaces(machine.run, tmp_path).found] == ["eth0", "br0"]


async def test_a_change_is_told_and_a_failure_keeps_what_is_known(tmp_path: Path) -> None:
    machine, told = Machine(shown("eth0", "10.0.0.2")), list[None]()
    interfaces = Interfaces(machine.run, tmp_path)
    await interfaces.look(lambda: told.append(None))
    assert not told
    machine.shown = [shown("eth0", "10.0.0.9")]
    await interfaces.look(lambda: told.append(None))
    assert len(told) == 1
    machine.shown = None
    await interfaces.look(lambda: told.append(None))
    assert [str(each.addresses[0]) for each in interfaces.found] == ["10.0.0.9"]
    assert len(told) == 1


def test_bridges_of_the_site_are_told_whatever_their_names_begin_with(tmp_path: Path) -> None:
    names = ("docker_gwbridge", "br-storage", "br-0a1b2c3d4e5f0", "docker-lan")
    machine = Machine(*(shown(name, f"10.0.{number}.2") for number, name in enumerate(names)))
    assert [each.name for each in Interfaces(machine.run, tmp_path).found] == [*names[1:]]


def test_of_more_than_are_told_those_with_addresses_are(tmp_path: Path) -> None:
    """As of a card that shares itself among virtual machines, each of whose parts is an interface."""
    parts = [shown(f"vf{number}") for number in range(MAX_INTERFACES)]
    machine = Machine(shown("eth0", "10.0.0.2"), *parts, shown("eth2", "10.1.0.2"))
    names = [each.name for each in Interfaces(machine.run, tmp_path).found]
    assert names == ["eth0", *(f"vf{number}" for number in range(MAX_INTERFACES - 2)), "eth2"]


@pytest.mark.parametrize("odd", [[{}], [{"ifname": "eth9", "addr_info": [{"family": "inet", "scope": "global"}]}], {}])
def test_an_agent_starts_whatever_ip_shows(tmp_path: Path, odd: Any) -> None:
    assert Interfaces(lambda _: json.dumps(odd), tmp_path).found == []
