"""Reading `site.yml`: its model, and the rules that span several of its values.

Every rule that can be checked without touching a node is checked here, and every error names the line and the hint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from ipaddress import IPv4Network
from zoneinfo import available_timezones

from appliance.site import cluster_engine, firewall, gpu_driver, groups, infiniband
from appliance.site.gpu import order_findings
from appliance.site.kubernetes import cluster_findings
from appliance.site.model import INNER_PORTS, NFS_PORT, ExternalStorage, NfsStorage, Node, NodeRole, Site, worker_path
from appliance.site.slurm import Engine
from common import egress
from common.errors import InputError
from common.places import Path
from common.settings.logs import JOURNAL_OF_NODE_MIB
from common.yaml_document import YamlDocument, check

SERVICE_NAMES = {"localhost": None, "reservoir": "reservoir", "penstock": "master"}
"""Names that lead to services, with the role whose node may bear them."""
SYSTEM_FOLDERS = {
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "proc",
    "root",
    "run",
    "sbin",
    "sys",
    "tmp",
    "usr",
}
"""Folders at the root of a node that no storage may take, nor a part of them."""

OWN_FOLDERS = ("/opt/penstock", "/var/lib/penstock", "/var/log/penstock")
"""Folders of nodes that are ours."""

SESSIONS = IPv4Network("172.17.0.0/16")
"""The network of Docker's bridge as Docker chooses it, with the sessions of each worker."""

Fault = tuple[Path, str, str]
"""What a rule finds: the path of the value, what is wrong with it, and the hint."""


def load(document: YamlDocument) -> Site:
    """Return the site that a document describes; raises one InputError that lists every problem found."""
    site = check(Site, document)
    rules = (
        _duplicates,
        _addresses,
        _names,
        _roles,
        _ports,
        _servers,
        _exports,
        _paths,
        _session_storage,
        _host_paths,
        _docker_roots,
        _egress,
        _workers,
        _infiniband,
        cluster_engine.findings,
        firewall.findings,
        _journals,
        _zone,
    )
    problems = [document.problem(path, reason, hint) for rule in rules for path, reason, hint in rule(site)]
    if problems:
        raise InputError.of(problems)
    return site


def _duplicates(site: Site) -> Iterator[Fault]:
    seen: dict[tuple[str, str], str] = {}
    for index, node in enumerate(site.nodes):
        for field, kind, value in (
            ("name", "name", node.name),
            ("address", "address", str(node.address)),
            ("ib_address", "address", str(node.ib_address or "")),
        ):
            if not value:
                continue
            mine = f"nodes[{index}].{field}"
            if (first := seen.setdefault((kind, value), mine)) != mine:
                yield ("nodes", index, field), f"{value} is also {first}", f"give every node its own {kind}"
    names = Counter(storage.name for storage in site.storage)
    for index, storage in enumerate(site.storage):
        if names[storage.name] > 1:
            reason = f"two storages are named {storage.name}"
            yield ("storage", index, "name"), reason, "give every storage its own name"


def _addresses(site: Site) -> Iterator[Fault]:
    for index, node in enumerate(site.nodes):
        for field, address in (("address", node.address), ("ib_address", node.ib_address)):
            if address is None:
                continue
            if address.is_unspecified or address.is_loopback or address.is_multicast or address.is_reserved:
                reason = f"{address} cannot be the address of a node"
                yield ("nodes", index, field), reason, "use the node's address in the site's network"


def _names(site: Site) -> Iterator[Fault]:
    for index, node in enumerate(site.nodes):
        if node.name in SERVICE_NAMES and SERVICE_NAMES[node.name] not in node.roles:
            reason = f"the name {node.name} leads to a service on another node"
            yield ("nodes", index, "name"), reason, "choose another name"
        elif node.name in groups.NAMES:
            yield ("nodes", index, "name"), f"{node.name} is a group of nodes for Ansible", "choose another name"


def _roles(site: Site) -> Iterator[Fault]:
    for role in (NodeRole.RESERVOIR, NodeRole.MASTER):
        if (count := len(site.with_role(role))) != 1:
            yield ("nodes",), f"{count} nodes have the role {role}", f"give the role {role} to exactly one node"
    for index, node in enumerate(site.nodes):
        path: Path = ("nodes", index)
        if len(set(node.roles)) != len(node.roles):
            yield (*path, "roles"), "a role stands twice", "name each role once"
        worker = NodeRole.WORKER in node.roles
        if worker and node.agent_port is None:
            yield path, f"worker {node.name} has no agent_port", "add `agent_port: 6001`"
        for field in ("agent_port", "gpus", "driver", "simulated_gpus", "enforcement", "docker_root", "kubernetes"):
            if not worker and getattr(node, field) is not None:
                hint = f"remove {field}, or add the role worker"
                yield (*path, field), f"{node.name} is not a worker", hint


def _ports(site: Site) -> Iterator[Fault]:
    taken = {site.ssh.port: "ssh", **INNER_PORTS}
    if site.engine is Engine.SLURM:
        taken |= dict.fromkeys(cluster_engine.PORTS, "Slurm")
    for name, port in site.ports.model_dump().items():
        if (holder := taken.setdefault(port, f"ports.{name}")) != f"ports.{name}":
            yield ("ports", name), f"port {port} is also used by {holder}", "choose another port"
    for index, node in enumerate(site.nodes):
        alone = node.roles == [NodeRole.WORKER]
        holder = "ssh" if node.agent_port == site.ssh.port else taken.get(node.agent_port or 0, "")
        if holder in ("ssh", "Slurm") or (holder and not alone):
            reason = f"port {node.agent_port} is also used by {holder}"
            yield ("nodes", index, "agent_port"), reason, "choose another port"


def _journals(site: Site) -> Iterator[Fault]:
    needed = JOURNAL_OF_NODE_MIB * len(site.nodes)
    if site.logs.gather and site.logs.gathered_mib < needed:
        yield (
            ("logs", "gathered_mib"),
            f"is too little for the journals of {len(site.nodes)} nodes",
            f"write {needed} or more",
        )


def _zone(site: Site) -> Iterator[Fault]:
    zones = available_timezones()
    # a bare machine knows none; each node is asked when it has its packages
    if zones and site.time.zone not in zones:
        near = get_close_matches(site.time.zone, sorted(zones), n=1)
        hint = f"did you mean {near[0]}?" if near else "write one such as Asia/Seoul"
        yield ("time", "zone"), f"there is no time zone {site.time.zone}", hint


def _servers(site: Site) -> Iterator[Fault]:
    servers = [node.name for node in site.with_role(NodeRole.STORAGE)]
    kinds: dict[str, str] = {}
    for index, storage in enumerate(site.storage):
        path: Path = ("storage", index)
        if not isinstance(storage, NfsStorage):
            continue
        if not servers:
            yield path, "no node has the role storage", "give the role storage to the node that exports it"
        elif storage.node is None and len(servers) != 1:
            yield path, f"{len(servers)} nodes have the role storage", "name the server with `node`"
        elif storage.node is not None and storage.node not in servers:
            reason = f"{storage.node} is not a node with the role storage"
            yield (*path, "node"), reason, "name a storage node"
        elif (first := kinds.setdefault(site.nfs_server(storage).name, storage.server)) != storage.server:
            reason = f"{site.nfs_server(storage).name} runs the server {first} already"
            yield (*path, "server"), reason, "give all storages of a node the same server"


def _exports(site: Site) -> Iterator[Fault]:
    """A storage server exports each folder once, and no storage stands on a folder of the system."""
    first: dict[tuple[str | None, str], str] = {}
    servers = [node.name for node in site.with_role(NodeRole.STORAGE)]
    for index, storage in enumerate(site.storage):
        for field in ("path", "mount_path"):
            path = str(getattr(storage, field, ""))
            if path and path.split("/")[1] in SYSTEM_FOLDERS:
                yield ("storage", index, field), f"{path} belongs to the system", "choose a folder such as /srv/shared"
        if isinstance(storage, NfsStorage):
            server = storage.node or (servers[0] if servers else None)
            if (name := first.setdefault((server, storage.path), storage.name)) != storage.name:
                reason = f"{server} exports {storage.path} already, as {name}"
                yield ("storage", index, "path"), reason, "choose another folder"


def _paths(site: Site) -> Iterator[Fault]:
    """No two storages may stand at one path of a node, nor one below another."""
    taken: list[tuple[str, str]] = []
    for index, storage in enumerate(site.storage):
        field = "path" if isinstance(storage, ExternalStorage) else "mount_path"
        if isinstance(storage, NfsStorage) and not storage.clients:
            continue
        path = str(getattr(storage, field))
        for name, other in taken:
            if f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/"):
                yield ("storage", index, field), f"{path} and {other} of {name} overlap", "choose another folder"
        taken.append((storage.name, path))


def _docker_roots(site: Site) -> Iterator[Fault]:
    """Docker's folder is its own: no part of the system, of a storage, of what sessions mount, or of ours."""
    mounted = [(f"storage {each.name}", getattr(each, "mount_path", each.path)) for each in site.storage]
    mounted += [("session_host_paths", folder) for folder in site.session_host_paths]
    mounted += [("Penstock", folder) for folder in OWN_FOLDERS]
    exported = [(f"storage {each.name}", each.path) for each in site.storage]
    for index, node in enumerate(site.nodes):
        path, root = ("nodes", index, "docker_root"), node.docker_root
        if root is None:
            continue
        if root.split("/")[1] in SYSTEM_FOLDERS:
            yield path, f"{root} belongs to the system", "choose a folder such as /data/docker"
        for name, other in [*mounted, *(exported if NodeRole.STORAGE in node.roles else ()), *_kept_on(site, node)]:
            if f"{root}/".startswith(f"{other}/") or f"{other}/".startswith(f"{root}/"):
                yield path, f"{root} and {other} of {name} overlap", "choose a folder that is Docker's alone"
                break
        if node.kubernetes is not None:
            yield path, f"{node.name} stands for a cluster, which runs no Docker of ours", "remove docker_root"


def _kept_on(site: Site, node: Node) -> Iterator[tuple[str, str]]:
    """Yield the folders of a node in which the site keeps something where its file says, with who does."""
    if node is site.reservoir and site.backup.copy_to:
        yield "backup.copy_to", site.backup.copy_to
    if node is site.master and site.backup.wal_to:
        yield "backup.wal_to", site.backup.wal_to
    if node is site.master or node.name == site.slurm.backup_controller:
        yield "slurm", site.slurm.state_folder


def _session_storage(site: Site) -> Iterator[Fault]:
    if site.session_storage is None:
        return
    named = [storage for storage in site.storage if storage.name == site.session_storage]
    if not named:
        yield ("session_storage",), f"no storage is named {site.session_storage}", "name one of `storage`"
    elif worker_path(named[0]) is None:
        reason = f"workers do not mount {site.session_storage}"
        yield ("session_storage",), reason, "add worker to its `clients`, or name another storage"


def _host_paths(site: Site) -> Iterator[Fault]:
    pvcs = site.session_pvc_root
    roots = {worker_path(storage): storage.name for storage in site.storage}
    for index, folder in enumerate(site.session_host_paths):
        path: Path = ("session_host_paths", index)
        if folder.split("/")[1] in SYSTEM_FOLDERS:
            yield path, f"{folder} belongs to the system", "name a folder such as /mnt/data"
        if pvcs and (f"{pvcs}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{pvcs}/")):
            reason = f"{folder} and the sessions' PVCs at {pvcs} overlap: who mounts it has those of every project"
            yield path, reason, "open another folder"
        elif name := next((name for root, name in roots.items() if root and f"{root}/".startswith(f"{folder}/")), ""):
            yield path, f"{folder} is the storage {name} as a whole, or lies above it", "open a folder in it"


def _egress(site: Site) -> Iterator[Fault]:
    """A node is opened a port at a time, and never to what trusts whoever comes from a node."""
    kept = {site.ssh.port: "sshd", NFS_PORT: "NFS, which knows no users,"}
    by_address = {node.address: node for node in site.nodes} | {node.ib_address: node for node in site.nodes}
    for index, text in enumerate(site.sessions.egress):
        path: Path = ("sessions", "egress", index)
        opened = egress.parse(text)
        if any(opened.network.subnet_of(own) for own in (SESSIONS, site.control_api.gang_networks)):
            yield path, f"{text} is an address of sessions, or of the worker towards them", "open it by another address"
            continue
        node = by_address.get(opened.network.network_address) if opened.is_address else None
        if node is None:
            continue
        if opened.ports is None:
            yield path, f"{text} is {node.name} with all that it serves", f"name the port, as {text}:8000"
            continue
        first, last = opened.ports
        closed = kept | ({node.agent_port: "the agent"} if node.agent_port else {})
        for port in sorted(port for port in closed if first <= port <= last):
            yield path, f"{text} opens {closed[port]} of {node.name} to every session", "open other ports of it alone"


def _infiniband(site: Site) -> Iterator[Fault]:
    yield from infiniband.findings(site.nodes)


def _workers(site: Site) -> Iterator[Fault]:
    yield from order_findings(site.gpu.enforcement, ("gpu", "enforcement"))
    for index, node in enumerate(site.nodes):
        yield from order_findings(node.enforcement or [], ("nodes", index, "enforcement"))
        if node.gpus and node.simulated_gpus:
            reason = f"the GPUs of {node.name} are simulated"
            yield ("nodes", index, "gpus"), reason, "leave out one of `gpus` and `simulated_gpus`"
        if node.driver:
            path: Path = ("nodes", index, "driver")
            if node.simulated_gpus or node.kubernetes or (node.gpus and not node.gpus.count):
                yield path, f"{node.name} has no GPUs that a driver is installed for", "remove driver"
            yield from gpu_driver.findings(node.driver, path, has_infiniband=node.ib_address is not None)
    yield from cluster_findings(site.nodes)
