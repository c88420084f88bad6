"""Ways between nodes: which ports of which nodes must answer whom, and the verdict on those that were tried. Pure.

Before services are there, the role `preflight` listens on their ports for a moment, and answers on those of UDP.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from typing import Any

from appliance.site import cluster_engine
from appliance.site.model import NFS_PORT, ExternalStorage, Node, NodeRole, Site
from appliance.site.slurm import ACCOUNTING_PORT, CONTROLLER_PORT, NODE_PORT
from common.checks import Check, CheckState

LISTENS, TRIED, LISTENED, UNHEARD = "penstock_listens", "penstock_tried", "penstock_listened", "penstock_unheard"
"""What the role publishes: ports that are listened on or held by somebody, the ways that it went, which of those ports
are still listened on at the end, and why nobody could listen."""
NAME = "nodes reach each other"
TCP, UDP = "tcp", "udp"
TIME_PORT, VXLAN_PORT = 123, 4789
STREAMS = (32768, 60999)
"""Ports that the kernel chooses, on which programs of Slurm await what their steps say."""
AGENT_SETTINGS = "/etc/penstock/agent.env"
"""A node that has the file may run sessions at any moment."""
ANSWER_S = 120
"""So long at most a node listens, and a second more for each node of the site."""

Published = Mapping[str, Mapping[str, Any]]


class From(Enum):
    """From where a port is reached: by people and sessions, too, by all nodes, or by those that call it alone."""

    EVERYWHERE = auto()
    NODES = auto()
    CALLER = auto()


@dataclass(frozen=True)
class Way:
    """A port of a node that another one needs. `node` is the name of the one that is unfit where it does not answer.

    Where it is the first one of a range, `last` is its end. `opened_to` is for whom firewalls have to open it.

    Without what is `needed` a deploy comes to nothing; without the rest some sessions do. Where the target has the file
    `unless`, nobody listens there for a moment, as the port's user may want it just then; nothing is said of the way.
    """

    source: Node
    target: Node
    port: int
    what: str
    node: str
    protocol: str = TCP
    needed: bool = True
    unless: str = ""
    last: int = 0
    opened_to: From = From.NODES

    @property
    def key(self) -> str:
        """How the role names it: the protocol, and where it leads."""
        return f"{self.protocol}/{self.target.address}:{self.port}"


def between(site: Site) -> list[Way]:
    """Return all ways between different nodes of a site, each port once."""
    found = {(way.source.name, way.key): way for way in all_of(site) if way.source is not way.target}
    return list(found.values())


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Return what each node is asked, by names: where it listens for a moment to which callers, and whom it tries."""
    asked: dict[str, dict[str, Any]] = {node.name: {"node_listens": [], "node_tries": []} for node in site.nodes}
    listens: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for way in between(site):
        port = {"protocol": way.protocol, "port": way.port}
        listened = listens[way.target.name].setdefault(way.key, port | {"callers": []})
        listened["callers"].append(str(way.source.address))
        listened |= {"unless": way.unless} if way.unless else {}
        asked[way.source.name]["node_tries"].append(port | {"address": str(way.target.address), "key": way.key})
    for name, by_key in listens.items():
        asked[name]["node_listens"] = list(by_key.values())
    return asked


def judge(ways: list[Way], published: Published) -> dict[str, list[Check]]:
    """Return by nodes which ways were tried in vain, and for each node that tried some without that, that all is well.

    What nobody listened on says nothing: a node that does not answer is named by itself. Nor does what nobody listens
    on any more at the end keep a node out: another preflight may have ended meanwhile.
    """
    found: dict[str, list[Check]] = {name: [] for name, said in published.items() if said.get(TRIED)}
    for name, said in published.items():
        if said.get(UNHEARD):
            found.setdefault(name, []).append(_unheard(name, said[UNHEARD]))
    for way in ways:
        reason = published.get(way.source.name, {}).get(TRIED, {}).get(way.key)
        target, port = published.get(way.target.name, {}), f"{way.protocol}/{way.port}"
        if reason and way.node in published and port in target.get(LISTENS, ()):
            listened = port in target.get(LISTENED, ())
            found.setdefault(way.node, []).append(_in_vain(way, reason) if listened else _unknown(way, reason))
    return {
        node: checks
        or [Check("ways", NAME, CheckState.OK, f"{len(published[node][TRIED])} ports of others were tried")]
        for node, checks in found.items()
    }


def _in_vain(way: Way, reason: str) -> Check:
    port = f"{way.protocol.upper()} port {way.port}"
    hint = f"let firewalls pass {port} from {way.source.address} to {way.target.address}"
    return Check("ways", NAME, CheckState.FAIL if way.needed else CheckState.WARN, _told(way, reason), hint)


def _unknown(way: Way, reason: str) -> Check:
    said = f"{_told(way, reason)}, but nobody listened there any more"
    return Check("ways", NAME, CheckState.WARN, said, "look whether another preflight ran meanwhile, and try again")


def _unheard(node: str, reason: str) -> Check:
    said = f"others could not try the ports of {node}: {reason}"
    return Check("ways", NAME, CheckState.WARN, said, "look who has that name on the node, and try again")


def _told(way: Way, reason: str) -> str:
    port = f"{way.protocol.upper()} port {way.port}"
    return f"{way.source.name} does not reach {port} of {way.target.name} ({way.what}): {reason}"


def all_of(site: Site) -> Iterator[Way]:
    """Yield all ways of a site, also those of nodes to themselves."""
    master, reservoir, ports = site.master, site.reservoir, site.ports
    workers = [node for node in site.with_role(NodeRole.WORKER) if node.agent_port is not None]
    # the machines of a cluster fetch images, too, and the site file does not know them
    images_for = From.EVERYWHERE if any(node.kubernetes for node in workers) else From.NODES
    for node in site.nodes:
        yield Way(node, reservoir, ports.reservoir, "packages", node.name, opened_to=From.EVERYWHERE)
        if site.logs.gather:
            yield Way(node, master, ports.agents, "journals", node.name)
        for port, what in ((ports.console, "console"), (ports.api, "API"), (ports.apps, "apps")):
            yield Way(node, master, port, what, node.name, needed=False, opened_to=From.EVERYWHERE)
        if not site.time.servers:
            yield Way(node, master, TIME_PORT, "time", node.name, UDP, needed=False)
    for node in workers:
        yield Way(node, reservoir, ports.registry, "images", node.name, opened_to=images_for)
        yield Way(node, master, ports.agents, "control API", node.name)
        yield Way(master, node, node.agent_port or 0, "agent", node.name, opened_to=From.CALLER)
        if node.kubernetes is None:
            first, last = site.node_agent.port_range
            what, caller = "ports of sessions", From.CALLER
            yield Way(master, node, first, what, node.name, needed=False, last=last, opened_to=caller)
    yield from _of_storages(site)
    yield from _of_slurm(site)
    # each with the next one: all pairs would be too many, and firewalls stand between rows
    of_sessions = [node for node in workers if node.kubernetes is None]
    for one, other in pairwise([*of_sessions, *of_sessions[:1]] if len(of_sessions) > 1 else []):
        what = "sessions on several nodes"
        yield Way(one, other, VXLAN_PORT, what, one.name, UDP, needed=False, unless=AGENT_SETTINGS)


def _of_storages(site: Site) -> Iterator[Way]:
    for storage in site.storage:
        if isinstance(storage, ExternalStorage):
            continue
        for node in site.nodes:
            if set(storage.clients) & set(node.roles):
                server, what = site.nfs_server(storage), f"storage {storage.name}"
                yield Way(node, server, NFS_PORT, what, node.name, opened_to=From.CALLER)


def _of_slurm(site: Site) -> Iterator[Way]:
    members = [node for node in site.nodes if cluster_engine.is_member(site, node)]
    controllers = [node for node in members if node.name in (site.master.name, site.slurm.backup_controller)]
    first, last = STREAMS
    for node in members:
        yield Way(node, site.master, ACCOUNTING_PORT, "slurmdbd", node.name, needed=False)
        yield Way(node, node, first, "steps", node.name, needed=False, last=last)
        for controller in controllers:
            if node.slurm is not None:
                yield Way(node, controller, CONTROLLER_PORT, "slurmctld", node.name)
                yield Way(controller, node, NODE_PORT, "slurmd", node.name)
