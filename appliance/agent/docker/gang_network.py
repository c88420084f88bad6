"""The network between a session's containers as Docker and the kernel of one node describe it. Pure.

It is a bridge of Docker's that has no way out. Where other nodes have containers of the session too, a VXLAN is a port
of the bridge and sends what it cannot place to each of these nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from docker.types import IPAMConfig, IPAMPool

from common.errors import InputError, Problem
from common.protocol import USUAL_MTU, GangNetwork

LABEL = "io.penstock.gang"
INTERFACE = "eth1"
"""What a container calls its interface on the network: Docker puts networks without a way out behind the others."""
VXLAN_PORT = 4789
"""UDP port of every node that has such networks, as IANA has it for VXLAN."""
BRIDGE_PREFIX = "psg-"
LINK_PREFIX = "psx-"
_NAME_PREFIX = "penstock-gang-"
_EVERYONE = "00:00:00:00:00:00"

Command = tuple[str, ...]


def name_of(number: int) -> str:
    """Return the name of the Docker network of a number."""
    return f"{_NAME_PREFIX}{number}"


def is_gang(name: str) -> bool:
    """Return whether a Docker network is one between the containers of a session."""
    return name.startswith(_NAME_PREFIX)


def number_of(inspection: Mapping[str, Any]) -> int | None:
    """Return the number of a Docker network; None for one that somebody else has given our label."""
    text = inspection["Labels"][LABEL]
    return int(text) if text.isdecimal() and inspection["Name"] == name_of(int(text)) else None


def bridge_of(number: int) -> str:
    """Return the name of the bridge of a number."""
    return f"{BRIDGE_PREFIX}{number}"


def link_of(number: int) -> str:
    """Return the name of the VXLAN of a number."""
    return f"{LINK_PREFIX}{number}"


def check(network: GangNetwork) -> None:
    """Refuse a network whose other nodes have no address that a VXLAN could send to; raises InputError."""
    problems = [
        Problem(
            f"network.peers.{position}",
            f"{peer} is no IPv4 address, and containers of one session meet over IPv4 alone",
            "give the node an IPv4 address, or ask for all containers on one node",
        )
        for position, peer in enumerate(network.peers)
        if not _is_address(peer)
    ]
    if network.local and not _is_address(network.local):
        problems.append(
            Problem(
                "network.local",
                f"{network.local} is no IPv4 address, and containers of one session meet over IPv4 alone",
                "choose another interface for the node",
            )
        )
    if problems:
        raise InputError.of(problems)


def environment() -> dict[str, str]:
    """Return what tells collective libraries which of a container's interfaces leads to the others."""
    return {"NCCL_SOCKET_IFNAME": INTERFACE, "GLOO_SOCKET_IFNAME": INTERFACE}


def creation(network: GangNetwork, mtu: int) -> dict[str, Any]:
    """Return the arguments with which docker's `create_network` makes it; packets are of at most `mtu` bytes."""
    return {
        "name": name_of(network.number),
        "driver": "bridge",
        "internal": True,
        "ipam": IPAMConfig(pool_configs=[IPAMPool(subnet=str(network.subnet))]),
        "labels": {LABEL: str(network.number)},
        "options": {
            "com.docker.network.bridge.name": bridge_of(network.number),
            # the node itself has no address there: sessions do not reach it by that way, nor each other through it
            "com.docker.network.bridge.inhibit_ipv4": "true",
            "com.docker.network.driver.mtu": str(mtu),
        },
    }


def subnets_of(inspection: Mapping[str, Any]) -> list[str]:
    """Return the subnets of a Docker network."""
    return [config["Subnet"] for config in inspection["IPAM"]["Config"] or []]


def mtu_of(inspection: Mapping[str, Any]) -> int:
    """Return how many bytes a packet on a Docker network of ours has at most."""
    return int(inspection["Options"].get("com.docker.network.driver.mtu", USUAL_MTU))


def link(network: GangNetwork, local: str, mtu: int) -> list[Command]:
    """Return the commands that make the VXLAN; `local` is this node's address."""
    name, bridge = link_of(network.number), bridge_of(network.number)
    kind = ("type", "vxlan", "id", str(network.number), "local", local, "dstport", str(VXLAN_PORT))
    return [
        ("ip", "link", "add", name, "mtu", str(mtu), *kind),
        ("ip", "link", "set", name, "addrgenmode", "none", "master", bridge, "up"),
    ]


def is_linked(shown: Sequence[Mapping[str, Any]], network: GangNetwork, local: str) -> bool:
    """Return whether one of the VXLANs that `ip` has shown is this network's, and is on its bridge."""
    for each in shown:
        if each["ifname"] == link_of(network.number) and each.get("master") == bridge_of(network.number):
            data = each["linkinfo"]["info_data"]
            return bool(data["id"] == network.number and data.get("local") == local and data["port"] == VXLAN_PORT)
    return False


def links(shown: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the numbers of our VXLANs among those that `ip` has shown."""
    names = (each["ifname"].removeprefix(LINK_PREFIX) for each in shown if each["ifname"].startswith(LINK_PREFIX))
    return {int(name) for name in names if name.isdecimal()}


def fdb_changes(network: GangNetwork, shown: Iterable[Mapping[str, Any]]) -> list[Command]:
    """Return the commands after which the VXLAN sends to exactly the other nodes; `shown` is what it sends to now."""
    device = link_of(network.number)
    now = {each["dst"] for each in shown if each["mac"] == _EVERYONE and "dst" in each}
    fresh = sorted(set(network.peers) - now)
    stale = sorted(now - set(network.peers))
    return [
        *(("bridge", "fdb", "append", _EVERYONE, "dev", device, "dst", peer) for peer in fresh),
        *(("bridge", "fdb", "del", _EVERYONE, "dev", device, "dst", peer) for peer in stale),
    ]


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
