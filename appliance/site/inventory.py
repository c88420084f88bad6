"""Ansible's inventory of a site. Pure: what comes out depends on nothing but what goes in.

A group is named as the role that its nodes get; `inventory/group_vars/all/<role>.yml` wires the `site_*` and
`node_*` variables made here to the variables of each role.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Any

from pydantic import BaseModel

from appliance.site import cluster_engine, firewall, gpu_driver
from appliance.site.groups import (
    ATTACHMENT,
    CLUSTER_ENGINE,
    DETACHMENT,
    EVERY_NODE,
    FABRIC,
    GROUPS,
    HEALTH,
    INFINIBAND,
    INTERFACES,
    MONITORING,
    MUNGE,
    NVIDIA_DRIVER,
    SLURM_ACCOUNTING,
    STORAGE_CLIENT,
    STORAGE_MARKER,
    WAL_ARCHIVE,
)
from appliance.site.model import NFS_PORT, ExternalStorage, NfsStorage, Node, NodeRole, Site, worker_path
from appliance.site.slurm import Engine
from common import egress
from common.egress import Destination
from common.gpu.share import Granularity
from common.protocol import HEALTH_PATH
from common.repair_protocol import CONTROLLER
from common.settings.health import CheckSettings, HealthKeeping, HealthSettings
from common.settings.kubernetes import KubernetesSettings
from common.settings.logs import ContainerLogSettings
from common.settings.node_agent import GpuSettings, LocationSettings, SimulatedGpuSettings
from common.settings.repair import AutomaticRepairSettings

STATE = "/var/lib/penstock/site"
"""Where the controller keeps the site's certificates and passwords."""

DOCKER_ROOT = "/var/lib/docker"
"""Where Docker keeps images and containers, unless it is told otherwise."""

SITE_FILE = "site.yml"
"""The site file of the last deploy, beside them, which backups are taken by."""

RESERVOIR_ROOT = "/var/lib/penstock/reservoir"

POSTGRESQL_PORT = 5432
GATHERED_LOGS = "/var/log/journal/remote"
"""Where the master has the journals of all nodes."""

ALIASES = {NodeRole.MASTER: "penstock", NodeRole.RESERVOIR: "reservoir"}
"""Names under which the services of a role are reached, beside the name of the node itself."""

NAMED_FILES = ("alerts_mail_ca", "alerts_webhook_ca", "audit_syslog_ca", "ldap_bind_password_file", "ldap_ca")
"""Settings of the control API that name a file of the master."""

Variables = dict[str, Any]


def aliases(site: Site, node: Node) -> list[str]:
    """Return the service names of a node: ours, in an order that does not depend on the site file, and people's."""
    own = [alias for role, alias in ALIASES.items() if role in node.roles]
    return own + (site.edge.names if NodeRole.MASTER in node.roles else [])


def build(site: Site, *, version: str, state: str = STATE, root: str = RESERVOIR_ROOT) -> dict[str, Any]:
    """Return the inventory of a site, in the form of Ansible's YAML inventories.

    `version` is the version of Penstock that the nodes install; `state` and `root` are folders of the controller,
    which is the reservoir node.
    """
    closed = closed_ways(site)
    opened = firewall.openings(site) if site.firewall.enabled else {}
    hosts = {
        node.name: {"node_openings": opened.get(node.name, [])} | _host(site, node, state, closed)
        for node in site.nodes
    }
    members = _members(site)
    return {
        "all": {
            "vars": _site(site, version, state, root),
            "hosts": hosts,
            "children": {group: {"hosts": {name: {} for name in names}} for group, names in members.items()},
        }
    }


def without_agent(site: Site) -> list[Node]:
    """Return the nodes that nobody but the controller looks at."""
    return [node for node in site.nodes if NodeRole.WORKER not in node.roles]


def closed_ways(site: Site) -> list[str]:
    """Return what nodes serve, as ADDRESS:PORT, and no session of the site may reach."""
    served = [
        *((node, site.ssh.port) for node in site.nodes),
        *((node, node.agent_port) for node in site.nodes if node.agent_port is not None),
        *((node, NFS_PORT) for node in site.with_role(NodeRole.STORAGE)),
        *((node, port) for node in site.nodes for port in cluster_engine.ports(site, node)),
        (site.master, POSTGRESQL_PORT),
        (site.reservoir, site.ports.registry),
    ]
    opened = [egress.parse(text) for text in (*site.session_services, *site.sessions.egress)]
    return [f"{node.address}:{port}" for node, port in served if not _is_open(opened, node, port)]


def _is_open(opened: list[Destination], node: Node, port: int) -> bool:
    return any(
        IPv4Network(node.address) == each.network and each.ports and each.ports[0] <= port <= each.ports[1]
        for each in opened
        if each.protocol == "tcp"
    )


def _members(site: Site) -> dict[str, list[str]]:
    everyone = [node.name for node in site.nodes]
    members = dict.fromkeys(EVERY_NODE, everyone)
    for role, groups in GROUPS.items():
        members |= {group: [node.name for node in site.with_role(NodeRole(role))] for group in groups}
    members[STORAGE_CLIENT] = [node.name for node in site.nodes if _mounts(site, node) or _external(site, node)]
    members[STORAGE_MARKER] = [
        node.name for node in site.nodes if node.name in members[STORAGE_CLIENT] or _exported(site, node)
    ]
    members[HEALTH] = [node.name for node in without_agent(site)]
    members[MONITORING] = [site.master.name] if site.monitoring.enabled else []
    members[WAL_ARCHIVE] = [site.master.name] if site.backup.wal_to else []
    members[NVIDIA_DRIVER] = [node.name for node in site.nodes if node.driver]
    members[INFINIBAND] = [node.name for node in site.nodes if node.infiniband]
    members[MUNGE] = members[CLUSTER_ENGINE] = cluster_engine.members(site)
    members[SLURM_ACCOUNTING] = [site.master.name] if site.engine is Engine.SLURM else []
    members[FABRIC] = [node.name for node in site.nodes if node.ib_address is not None]
    # commands of their own fill these
    members |= {group: [] for group in (INTERFACES, ATTACHMENT, DETACHMENT)}
    return members


def _site(site: Site, version: str, state: str, root: str) -> Variables:
    return {
        "site_name": site.name,
        "site_version": version,
        "site_state": state,
        "site_reservoir_root": root,
        "site_nodes": [
            {
                "name": node.name,
                "address": str(node.address),
                "aliases": aliases(site, node),
            }
            for node in site.nodes
        ],
        "site_fabric_addresses": [str(node.ib_address) for node in site.nodes if node.ib_address],
        "site_reservoir": site.reservoir.name,
        "site_master": site.master.name,
        "site_ports": site.ports.model_dump(),
        "site_agents": [node.name for node in site.with_role(NodeRole.WORKER)],
        "site_controllers": [CONTROLLER],
        "site_takes_orders": site.repair.controller,
        "site_edge": site.edge.model_dump(),
        "site_gpu_plugins": site.gpu.plugins,
        "site_control_api": _control_api(site),
        "site_named_files": named_files(site),
        "site_backup_hour": site.backup.hour,
        "site_wal": site.backup.model_dump(include={"wal_to", "wal_days", "wal_timeout_s"}),
        "site_package_index": site.package_index.model_dump(),
        "site_disk": site.disk.model_dump(),
        "site_time": site.time.model_dump(),
        "site_hardening": site.hardening.model_dump(),
        "site_monitoring": site.monitoring.model_dump(),
        "site_alerts": site.alerts.model_dump(mode="json"),
        "site_logs": site.logs.model_dump(),
        "site_engine": str(site.engine),
        "site_slurm": cluster_engine.variables(site) if site.engine is Engine.SLURM else {},
    }


def _host(site: Site, node: Node, state: str, closed: list[str]) -> Variables:
    variables = _connection(site, node, state) | {
        "node_address": str(node.address),
        "node_release": node.release,
        "node_reservoir": NodeRole.RESERVOIR in node.roles,
        "node_clock": NodeRole.MASTER in node.roles,
        "node_firewall": firewall.has_one(site, node),
        "node_docker_root": node.docker_root or DOCKER_ROOT,
        "node_take_over": [kind.value for kind in node.take_over],
        "node_mounts": _mounts(site, node),
        "node_external": _external(site, node),
        "node_calls": _calls(site, node),
        "node_storages": _storages(site, node) + _exported(site, node),
    }
    if node.agent_port is not None:
        variables["node_settings"] = _node_agent(site, node)
        if node.kubernetes is None:
            variables |= {"node_ways": [*site.session_services, *closed], "node_own_port": node.agent_port}
    if node.ib_address is not None:
        variables["node_ib_address"] = str(node.ib_address)
    if node.infiniband is not None:
        variables["node_infiniband"] = node.infiniband.model_dump() | {"mtu": node.infiniband.carries}
    if node.driver is not None:
        made_of = gpu_driver.packages(node.driver)
        variables["node_driver"] = node.driver.model_dump(mode="json") | {
            "packages": made_of.all,
            "tuple": made_of.tuple_,
        }
    return variables | _exports(site, node) | site.overridden(node)


def _calls(site: Site, node: Node) -> dict[str, str]:
    """Return what must answer a node, by the names of services: what people call, and agents to the control API."""
    master, ports = site.master.name, site.ports
    calls = {
        "console": f"https://{master}:{ports.console}/api/v1/health",
        "API": f"https://{master}:{ports.api}/api/v1/health",
        "apps": f"https://{master}:{ports.apps}/",
    }
    if NodeRole.MASTER in node.roles:
        workers = site.with_role(NodeRole.WORKER)
        calls |= {f"agent of {each.name}": f"https://{each.name}:{each.agent_port}{HEALTH_PATH}" for each in workers}
    return calls


def named_files(site: Site) -> list[str]:
    """Return the files of the master that the site names and no deploy brings: passwords, and authorities of others."""
    said = _control_api(site)
    return sorted({said[name] for name in NAMED_FILES if said.get(name)})


def _control_api(site: Site) -> Variables:
    """Return the settings of the control API: what the site says, and what follows from it."""
    settings = _said(site.gpu, *Granularity.model_fields) | _said(site.control_api) | _said(site.disk)
    settings |= _said(site.health, *CheckSettings.model_fields, *HealthKeeping.model_fields) | _said(site.alerts)
    settings |= _said(site.repair, *AutomaticRepairSettings.model_fields)
    settings |= _said(site.audit)
    settings |= {
        "host_paths": list(site.session_host_paths),
        "apps_url": site.apps_url,
        "registries": site.registries,
    }
    if site.edge.apps_name:
        settings["apps_name"] = site.edge.apps_name
    if site.repair.controller:
        settings["controller"] = True
    if site.engine is Engine.SLURM:
        settings["engine"] = str(site.engine)
    if site.logs.gather:
        settings["logs_folder"] = GATHERED_LOGS
    if site.session_pvc_root:
        settings |= {"pvc_root": site.session_pvc_root, "pvc_storage": site.session_pvc_storage}
    if storages := {storage.name: path for storage in site.storage if (path := worker_path(storage))}:
        settings["storages"] = storages
    return settings


def _node_agent(site: Site, node: Node) -> Variables:
    """Return the settings of a worker's agent: what the site says of all workers, what it says of this one."""
    settings = (
        _said(site.node_agent)
        | _said(site.disk)
        | _said(site.logs, *ContainerLogSettings.model_fields)
        | _said(site.gpu, *GpuSettings.model_fields)
    )
    settings |= _said(node, *LocationSettings.model_fields, "enforcement")
    settings |= _said(site.health, *HealthSettings.model_fields)
    settings |= {
        "name": node.name,
        "address": str(node.address),
        "port": node.agent_port,
        "api_url": f"https://{site.master.name}:{site.ports.agents}",
        "allowed": [site.master.name],
        "registries": site.registries,
        "package_index": f"https://{NodeRole.RESERVOIR}:{site.ports.reservoir}/pypi/simple/",
    }
    folders = [site.session_pvc_root, *site.session_host_paths]
    if node.gpus and not node.simulated_gpus:
        settings |= {"expected_gpus": node.gpus.count, "expected_gpu_model": node.gpus.model or ""}
    if node.docker_root:
        settings |= {"docker_root": node.docker_root}
    if node.ib_address and not node.kubernetes:
        settings |= {"ib_address": str(node.ib_address)}
    if node.driver and node.driver.peermem:
        settings |= {"kernel_modules": ["nvidia_peermem"]}
    if node.simulated_gpus:
        settings |= {"simulated_gpus": node.simulated_gpus.count}
        settings |= _said(node.simulated_gpus, *SimulatedGpuSettings.model_fields)
    if site.engine is Engine.SLURM and node.slurm:
        settings |= {"lease_users": [site.slurm.user_id], "foreign_gpus": node.slurm.gpus}
    if node.kubernetes:
        settings |= _said(node.kubernetes, *KubernetesSettings.model_fields)
        # it mounts nothing into sessions, and removes and measures volumes where it has their storage
        folders = [mount["path"] for mount in _mounts(site, node) if mount["path"] == site.session_pvc_root]
    else:
        settings |= {"egress": [*site.session_services, *site.sessions.egress]}
    roots = list(dict.fromkeys(filter(None, folders)))
    of_cluster = node.kubernetes is not None
    storages = {each["name"]: each["path"] for each in _storages(site, node) if not of_cluster or each["path"] in roots}
    return settings | {"mount_roots": roots} | ({"storages": storages} if storages else {})


def _said(part: BaseModel, *names: str) -> Variables:
    """Return what the site file says in a part, by the names of settings; all else is left to the service."""
    return part.model_dump(mode="json", exclude_unset=True, exclude_none=True, include={*names} if names else None)


def _connection(site: Site, node: Node, state: str) -> Variables:
    if NodeRole.RESERVOIR in node.roles:
        return {"ansible_connection": "local"}
    return connection(site, node.address, state)


def connection(site: Site, address: IPv4Address, state: str = STATE) -> Variables:
    """Return how the controller reaches a machine by SSH."""
    variables: Variables = {
        "ansible_host": str(address),
        "ansible_port": site.ssh.port,
        "ansible_user": site.ssh.user,
        "ansible_become": site.ssh.user != "root",
        # The first contact pins a node's key; a changed key is refused ever after.
        "ansible_ssh_common_args": f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={state}/known_hosts",
    }
    if site.ssh.private_key is not None:
        variables["ansible_ssh_private_key_file"] = site.ssh.private_key
    return variables


def _mounts(site: Site, node: Node) -> list[dict[str, str]]:
    return [
        {"source": f"{site.nfs_server(storage).name}:{storage.path}", "path": storage.mount_path}
        for storage in site.storage
        if isinstance(storage, NfsStorage) and set(storage.clients) & set(node.roles)
    ]


def _external(site: Site, node: Node) -> list[str]:
    if NodeRole.WORKER not in node.roles:
        return []
    return [storage.path for storage in site.storage if isinstance(storage, ExternalStorage)]


def _storages(site: Site, node: Node) -> list[Variables]:
    """Return the storages that a node has, and whether each has to be mounted: a folder of its own is nobody else's."""
    shared = len(site.with_role(NodeRole.WORKER)) > 1
    mounts = {mount["path"] for mount in _mounts(site, node)}
    found: list[Variables] = []
    for storage in site.storage:
        if isinstance(storage, ExternalStorage) and storage.path in _external(site, node):
            found.append({"name": storage.name, "path": storage.path, "mounted": shared})
        elif isinstance(storage, NfsStorage) and storage.mount_path in mounts:
            found.append({"name": storage.name, "path": storage.mount_path, "mounted": True})
    return found


def _exported(site: Site, node: Node) -> list[Variables]:
    """Return the storages that a node exports."""
    return [
        {"name": storage.name, "path": storage.path, "mounted": False}
        for storage in site.storage
        if isinstance(storage, NfsStorage) and NodeRole.STORAGE in node.roles and site.nfs_server(storage) == node
    ]


def _exports(site: Site, node: Node) -> Variables:
    if NodeRole.STORAGE not in node.roles:
        return {}
    exports = [
        storage for storage in site.storage if isinstance(storage, NfsStorage) and site.nfs_server(storage) == node
    ]
    return {
        "node_storage_server": exports[0].server if exports else "ganesha",
        "node_exports": [
            {
                "path": storage.path,
                "clients": [str(each.address) for each in site.nodes if set(storage.clients) & set(each.roles)],
            }
            for storage in exports
        ],
    }
