"""The site: the model of `site.yml`, the one file that an integrator writes. Pure: no file, no network.

Every rule that can be checked without touching a node is checked here, and every error names the line and the cure.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from appliance.gpu.share import MAX_GPUS, Split
from reservoir.document import Document, Path, check
from reservoir.errors import InputError, Problem

NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=NAME)]
Port = Annotated[int, Field(ge=1, le=65535)]
AbsolutePath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$")]


class Part(BaseModel):
    """Base of every part of the site: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Role(StrEnum):
    """What a node is for; a node may have several roles."""

    RESERVOIR = "reservoir"
    MASTER = "master"
    WORKER = "worker"
    STORAGE = "storage"


class SimulatedGpus(Part):
    """GPUs that a lab pretends to have. They are marked as simulated everywhere."""

    count: int = Field(ge=1, le=MAX_GPUS)
    model: str = "Simulated GPU"
    memory_mib: int = Field(default=16384, ge=1)


class Node(Part):
    """One machine. `address` is its IPv4 address in the site; `ib_address` absent means no InfiniBand."""

    name: Name
    address: IPv4Address
    roles: list[Role] = Field(min_length=1)
    agent_port: Port | None = None
    ib_address: IPv4Address | None = None
    simulated_gpus: SimulatedGpus | None = None


class Ssh(Part):
    """How the installer reaches the nodes; `private_key` None means the keys and agent of the calling user."""

    user: str = "root"
    port: Port = 22
    private_key: AbsolutePath | None = None


class Ports(Part):
    """Ports of the site's services."""

    console: Port = 443
    api: Port = 56789
    reservoir: Port = 8443
    registry: Port = 5000


class ExternalStorage(Part):
    """A folder that the site has mounted already on every worker; `volumes` of sessions live below it."""

    kind: Literal["external"]
    name: Name
    path: AbsolutePath


class NfsStorage(Part):
    """A folder of a storage node, exported by NFS version 4. `clients` lists the roles whose nodes mount it."""

    kind: Literal["nfs"]
    name: Name
    path: AbsolutePath
    node: Name | None = None
    server: Literal["ganesha", "kernel"] = "ganesha"
    mount_path: AbsolutePath = "/mnt/penstock"
    clients: list[Role] = Field(default_factory=lambda: [Role.MASTER, Role.WORKER])


Storage = Annotated[ExternalStorage | NfsStorage, Field(discriminator="kind")]


class Time(Part):
    """Time sources outside the cluster but inside the closed network; none means that the master is the clock."""

    servers: list[str] = Field(default_factory=list)
    zone: str = "Etc/UTC"


class Site(Part):
    """A whole site. Build it with `load`, which also runs the rules that span several nodes."""

    name: Name
    nodes: list[Node] = Field(min_length=1)
    ssh: Ssh = Ssh()
    ports: Ports = Ports()
    storage: list[Storage] = Field(default_factory=list)
    session_storage: Name | None = None
    gpu: Split = Split()
    time: Time = Time()

    def with_role(self, role: Role) -> list[Node]:
        """Return the nodes that have `role`, in the order of the file."""
        return [node for node in self.nodes if role in node.roles]

    @property
    def reservoir(self) -> Node:
        """The node that serves packages, images and files."""
        return self.with_role(Role.RESERVOIR)[0]

    @property
    def master(self) -> Node:
        """The node that runs the control API, its database and the edge."""
        return self.with_role(Role.MASTER)[0]

    @property
    def console_url(self) -> str:
        """Where people find the console."""
        port = "" if self.ports.console == 443 else f":{self.ports.console}"
        return f"https://{self.master.address}{port}"

    @property
    def api_url(self) -> str:
        """Where programs find the control API."""
        return f"https://{self.master.address}:{self.ports.api}"

    def nfs_server(self, storage: NfsStorage) -> Node:
        """Return the node that exports an NFS storage."""
        return next(node for node in self.with_role(Role.STORAGE) if storage.node in (None, node.name))

    @property
    def session_volume_root(self) -> str | None:
        """The folder on every worker below which sessions' volumes live; None without shared storage."""
        for storage in self.storage:
            if self.session_storage in (None, storage.name):
                return storage.path if isinstance(storage, ExternalStorage) else storage.mount_path
        return None

    @model_validator(mode="after")
    def _ports_differ(self) -> Site:
        used = Counter(self.ports.model_dump().values())
        twice = [port for port, count in used.items() if count > 1]
        if twice:
            raise ValueError(f"port {twice[0]} is given to two services of `ports`")
        return self


def load(document: Document) -> Site:
    """Return the site that a document describes; raises one InputError that lists every problem found."""
    site = check(Site, document)
    problems = [*_duplicates(site, document), *_role_rules(site, document), *_storage_rules(site, document)]
    if problems:
        raise InputError.of(problems)
    return site


def lab_network(site: Site) -> IPv4Network:
    """Return the /24 network that holds every node; raises InputError where the nodes do not share one."""
    network = IPv4Network(f"{site.nodes[0].address}/24", strict=False)
    for index, node in enumerate(site.nodes):
        if node.address not in network:
            raise InputError(
                f"{node.address} is outside of {network}, the network of the first node",
                where=f"nodes[{index}].address",
                cure="give all nodes of a lab one /24",
            )
        if node.address in (network.network_address, network.broadcast_address, network.network_address + 1):
            raise InputError(
                f"{node.address} is reserved in {network}",
                where=f"nodes[{index}].address",
                cure="use an address from .2 to .254",
            )
    return network


def _duplicates(site: Site, document: Document) -> list[Problem]:
    problems: list[Problem] = []
    seen: dict[tuple[str, str], int] = {}
    for index, node in enumerate(site.nodes):
        for field, value in (
            ("name", node.name),
            ("address", str(node.address)),
            ("ib_address", str(node.ib_address or "")),
        ):
            if value and (first := seen.setdefault((field, value), index)) != index:
                path: Path = ("nodes", index, field)
                problems.append(
                    document.problem(
                        path,
                        f"{value} is also the {field} of nodes[{first}] ({site.nodes[first].name})",
                        f"give every node its own {field}",
                    )
                )
    return problems


def _role_rules(site: Site, document: Document) -> list[Problem]:
    problems: list[Problem] = []
    for role in (Role.RESERVOIR, Role.MASTER):
        holders = site.with_role(role)
        if len(holders) != 1:
            problems.append(
                document.problem(
                    ("nodes",),
                    f"{len(holders)} nodes have the role {role}",
                    f"give the role {role} to exactly one node",
                )
            )
    for index, node in enumerate(site.nodes):
        path: Path = ("nodes", index)
        if len(set(node.roles)) != len(node.roles):
            problems.append(document.problem((*path, "roles"), "a role stands twice", "name each role once"))
        worker = Role.WORKER in node.roles
        if worker and node.agent_port is None:
            problems.append(document.problem(path, f"worker {node.name} has no agent_port", "add `agent_port: 6001`"))
        if worker and node.agent_port in site.ports.model_dump().values() and len(node.roles) > 1:
            problems.append(
                document.problem(
                    (*path, "agent_port"),
                    f"port {node.agent_port} is used by a service of `ports`",
                    "choose another port",
                )
            )
        if not worker and node.agent_port is not None:
            problems.append(
                document.problem(
                    (*path, "agent_port"),
                    f"{node.name} is not a worker",
                    "remove agent_port, or add the role worker",
                )
            )
        if not worker and node.simulated_gpus is not None:
            problems.append(
                document.problem(
                    (*path, "simulated_gpus"),
                    f"{node.name} is not a worker",
                    "remove simulated_gpus, or add the role worker",
                )
            )
    return problems


def _storage_rules(site: Site, document: Document) -> list[Problem]:
    problems: list[Problem] = []
    storage_nodes = {node.name for node in site.with_role(Role.STORAGE)}
    names = Counter(storage.name for storage in site.storage)
    for index, storage in enumerate(site.storage):
        path: Path = ("storage", index)
        if names[storage.name] > 1:
            problems.append(
                document.problem(
                    (*path, "name"),
                    f"two storages are named {storage.name}",
                    "give every storage its own name",
                )
            )
        if not isinstance(storage, NfsStorage):
            continue
        if storage.node is None and len(storage_nodes) != 1:
            problems.append(
                document.problem(
                    path, f"{len(storage_nodes)} nodes have the role storage", "name the server with `node`"
                )
            )
        elif storage.node is not None and storage.node not in storage_nodes:
            problems.append(
                document.problem(
                    (*path, "node"),
                    f"{storage.node} is not a node with the role storage",
                    "name a storage node",
                )
            )
    if site.session_storage is not None and site.session_storage not in names:
        problems.append(
            document.problem(
                ("session_storage",), f"no storage is named {site.session_storage}", "name one of `storage`"
            )
        )
    return problems
