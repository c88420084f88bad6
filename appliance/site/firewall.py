"""The firewall of the nodes: which ports others reach, and from where. Pure.

What nodes need of each other comes from the table that preflight tries (`ways`); `allow` opens what else there is on
the machines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, collapse_addresses
from typing import Any

from appliance.site import ways
from appliance.site.model import Node, Site
from appliance.site.ways import TCP, From, Way
from common.places import Path

Fault = tuple[Path, str, str]
Port = tuple[str, int, int]
"""A protocol, with the first and the last port of a range."""
EVERYWHERE = IPv4Network("0.0.0.0/0")


def has_one(site: Site, node: Node) -> bool:
    """Return whether a node has the firewall; on a machine of a cluster the cluster has its own."""
    return site.firewall.enabled and node.kubernetes is None


def findings(site: Site) -> Iterator[Fault]:
    """Yield what is wrong with the firewall of a site: where, what, and the hint."""
    if not site.firewall.enabled:
        return
    if not site.firewall.networks:
        hint = "add `networks`, those that the nodes are in, such as [10.0.0.0/24]"
        yield ("firewall",), "nobody tells from where nodes call each other", hint
        return
    for node in site.nodes:
        # NCCL calls from the one of InfiniBand, too
        for field, address in (("address", node.address), ("ib_address", node.ib_address)):
            if address is not None and not _holds(site.firewall.networks, address):
                reason = f"{node.name} has the {field} {address}, which is in none of these networks"
                yield ("firewall", "networks"), reason, "add its network"
    if site.firewall.ssh_networks and not _holds(site.firewall.ssh_networks, site.reservoir.address):
        reason = (
            f"deploys come from {site.reservoir.name} ({site.reservoir.address}), which is in none of these networks"
        )
        yield ("firewall", "ssh_networks"), reason, "add its network"


def openings(site: Site) -> dict[str, list[dict[str, Any]]]:
    """Return by the names of nodes the ports that they open, and to which networks; none stands for everywhere."""
    found: dict[str, dict[Port, set[IPv4Network]]] = {node.name: defaultdict(set) for node in site.nodes}
    for node in site.nodes:
        found[node.name][TCP, site.ssh.port, site.ssh.port].update(site.firewall.ssh_networks or [EVERYWHERE])
        for each in site.firewall.allow:
            found[node.name][each.protocol, each.port, each.port].update(each.networks)
    for way in ways.all_of(site):
        found[way.target.name][way.protocol, way.port, way.last or way.port].update(_sources(site, way))
    return {name: [_opening(port, ports[port]) for port in sorted(ports)] for name, ports in found.items()}


def _holds(networks: Iterable[IPv4Network], address: IPv4Address) -> bool:
    return any(address in network for network in networks)


def _sources(site: Site, way: Way) -> Iterable[IPv4Network]:
    match way.opened_to:
        case From.EVERYWHERE:
            return [EVERYWHERE]
        case From.NODES:
            return site.firewall.networks
        case From.CALLER:
            return [IPv4Network(way.source.address)]


def _opening(port: Port, sources: set[IPv4Network]) -> dict[str, Any]:
    protocol, first, last = port
    networks = [] if EVERYWHERE in sources else [str(network) for network in collapse_addresses(sources)]
    return {"protocol": protocol, "ports": f"{first}-{last}" if last > first else str(first), "networks": networks}
