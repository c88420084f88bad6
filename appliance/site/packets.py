"""Packets of nodes: how large they may be on the way between workers, and on the networks of sessions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from appliance.site.model import Node, NodeRole, Site
from common.checks import Check, CheckState
from common.protocol import USUAL_MTU, VXLAN_OVERHEAD

Machines = Mapping[str, Mapping[str, Any]]
"""What `roles/preflight/library/node_machine.py` says of nodes, by their names."""

NAME = "packets of sessions fit"


def judge(site: Site, machines: Machines) -> dict[str, list[Check]]:
    """Return a check for each worker whose interface is known: against the site's wish, and against other workers."""
    workers = [node for node in site.with_role(NodeRole.WORKER) if node.kubernetes is None]
    sizes = {node.name: machines[node.name]["mtu"] for node in workers if machines.get(node.name, {}).get("mtu")}
    return {
        node.name: [_check(site, node, machines[node.name]["carrier"], sizes)] for node in workers if node.name in sizes
    }


def _check(site: Site, node: Node, carrier: str, sizes: Mapping[str, int]) -> Check:
    size, several = sizes[node.name], len(sizes) > 1
    said = f"{carrier} carries {size} bytes"
    problems = list(_problems(site.node_agent.network_mtu, size, several=several))
    largest = max(sizes, key=lambda name: sizes[name])
    if sizes[largest] > size:
        hint = "give the interfaces of all workers, and the switches between them, one MTU"
        problems.append((f"{largest} sends up to {sizes[largest]}, which are lost on their way here", hint))
    if not problems:
        return Check("packets", NAME, CheckState.OK, said)
    evidence = "; ".join([said, *(reason for reason, _ in problems)])
    return Check("packets", NAME, CheckState.WARN, evidence, "; ".join(hint for _, hint in problems))


def _problems(wanted: int | None, size: int, *, several: bool) -> Iterator[tuple[str, str]]:
    """Yield what does not fit, with its hint; between containers on several nodes a VXLAN takes its part."""
    fits = size - VXLAN_OVERHEAD if several else size
    least = min(fits, USUAL_MTU)
    if wanted is not None and wanted > fits:
        of = f", of which VXLAN takes {VXLAN_OVERHEAD}" if several else ""
        yield f"`network_mtu` is {wanted}{of}", f"write {fits} at most as `network_mtu` of `node_agent`"
    elif wanted is None and size < USUAL_MTU:
        yield (
            f"containers send {USUAL_MTU} where nobody says otherwise",
            f"write {least} as `network_mtu` of `node_agent` in the site file",
        )
