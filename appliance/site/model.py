"""The site: the model of `site.yml`, the one file that an integrator writes. Pure: no file, no network."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from appliance.site.audit import Audit
from appliance.site.gpu import ExpectedGpus, SharedGpus
from appliance.site.gpu_driver import GpuDriver
from appliance.site.health import Alerts, Health
from appliance.site.infiniband import InfiniBand
from appliance.site.kubernetes import KubernetesCluster
from appliance.site.slurm import Engine, SlurmNode, SlurmSettings
from common.gpu.share import MAX_GPUS
from common.settings.backup import BackupSettings
from common.settings.control_api import ControlApiSettings
from common.settings.disk import DiskSettings
from common.settings.edge import EdgeSettings
from common.settings.images import ImageSettings
from common.settings.logs import LogSettings
from common.settings.monitoring import MonitoringSettings
from common.settings.node_agent import LocationSettings, NodeAgentSettings, Order, SimulatedGpuSettings
from common.settings.options import PlainPath, Port, keys_without
from common.settings.package_index import PackageIndexSettings
from common.settings.repair import RepairSettings
from common.settings.sessions import SessionSettings
from common.strict import StrictModel

NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=NAME)]
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$")]


def _network(value: object) -> object:
    try:
        return IPv4Network(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"is no network such as 10.0.0.0/24: {error}") from None


Network = Annotated[IPv4Network, BeforeValidator(_network)]

NFS_PORT = 2049
INNER_PORTS = {5001: "the registry behind its TLS"}
"""Ports that the appliance uses on the loopback address of its nodes."""


class NodeRole(StrEnum):
    """What a node is for; a node may have several roles. One of `slurm` runs jobs of people with `sbatch`."""

    RESERVOIR = "reservoir"
    MASTER = "master"
    WORKER = "worker"
    STORAGE = "storage"
    SLURM = "slurm"


Overrides = dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Any]
"""Variables of roles by their names; `overrides` checks them."""


class TakeOver(StrEnum):
    """What somebody else has on a node, and Penstock may have from now on."""

    CONTAINER_ENGINE = "container_engine"
    DATABASE = "database"
    EXPORTS = "exports"
    PACKAGES = "packages"
    WEB_SERVER = "web_server"


class TakingOver(StrictModel):
    """What a deploy may take over of a machine that was in use."""

    take_over: list[TakeOver] = Field(
        default=[],
        description="what a deploy may take over of what somebody else has on the node, by the names below; "
        "it refuses otherwise",
    )


class SimulatedGpus(SimulatedGpuSettings):
    """GPUs that a lab pretends to have. They are marked as simulated everywhere."""

    model_config = keys_without("simulated_gpu_")

    count: int = Field(ge=1, le=MAX_GPUS, description="how many there are")


class Node(LocationSettings, TakingOver):
    """One machine. `address` is its IPv4 address in the site; `ib_address` absent means no InfiniBand.

    `release` is the code name of the Debian release that it runs; a lab starts the node with it. `gpus` is what
    `site verify` expects of a worker, `driver` what drives them where the site installs or checks that, `infiniband`
    how the `ib_address` comes onto its interface where the site sees to that, and `enforcement` its own order of kinds
    instead of the site's. The agent of a worker with `kubernetes` stands for that cluster instead of its machine.
    `slurm` is the node as Slurm counts it, where that is the site's engine. `overrides` win over those of its roles and
    of the site. `docker_root` is where a worker's Docker keeps images and containers.
    """

    name: Name
    address: IPv4Address
    roles: list[NodeRole] = Field(min_length=1)
    release: Literal["bookworm", "trixie"] = "bookworm"
    agent_port: Port | None = None
    ib_address: IPv4Address | None = None
    infiniband: InfiniBand | None = None
    gpus: ExpectedGpus | None = None
    driver: GpuDriver | None = None
    simulated_gpus: SimulatedGpus | None = None
    enforcement: Order | None = None
    docker_root: PlainPath | None = None
    kubernetes: KubernetesCluster | None = None
    overrides: Overrides = Field(default_factory=dict)
    slurm: SlurmNode | None = None


class Ssh(StrictModel):
    """How the installer reaches the nodes; `private_key` None means the keys and agent of the calling user."""

    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] = "root"
    port: Port = 22
    private_key: PlainPath | None = None


class Ports(StrictModel):
    """Ports of the site's services."""

    console: Port = 443
    api: Port = 56789
    agents: Port = 56790
    apps: Port = 9443
    reservoir: Port = 8443
    registry: Port = 5000


class ExternalStorage(StrictModel):
    """A folder that the site has mounted already on every worker; PVCs of sessions live below it."""

    kind: Literal["external"]
    name: Name
    path: PlainPath


class NfsStorage(StrictModel):
    """A folder of a storage node, exported by NFS version 4. `clients` lists the roles whose nodes mount it."""

    kind: Literal["nfs"]
    name: Name
    path: PlainPath
    node: Name | None = None
    server: Literal["ganesha", "kernel"] = "ganesha"
    mount_path: PlainPath = "/mnt/penstock"
    clients: list[NodeRole] = Field(default_factory=lambda: [NodeRole.MASTER, NodeRole.WORKER])


Storage = Annotated[ExternalStorage | NfsStorage, Field(discriminator="kind")]


class Time(StrictModel):
    """Time sources outside the cluster but inside the closed network; none means that the master is the clock."""

    servers: list[Host] = Field(default_factory=list)
    zone: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$")] = "Etc/UTC"


class Allowed(StrictModel):
    """A port of something else on the machines, and the networks from which others reach it."""

    port: Port
    protocol: Literal["tcp", "udp"] = "tcp"
    networks: list[Network] = Field(min_length=1)


class Firewall(StrictModel):
    """Whether nodes close all ports but those that the site needs, and those that it says to `allow`.

    `networks` are those that the nodes are in, and from where nodes call each other. `ssh_networks` are those from
    where SSH is reached; none stands for everywhere.
    """

    enabled: bool = False
    networks: list[Network] = Field(default_factory=list)
    ssh_networks: list[Network] = Field(default_factory=list)
    allow: list[Allowed] = Field(default_factory=list)


class Hardening(StrictModel):
    """What is kept from services and the kernel of nodes that they never need, and whether SSH takes keys alone."""

    services: bool = True
    kernel: bool = True
    ssh_keys_only: bool = False


class Disk(DiskSettings):
    """When what can wait has to, for the disk of its node is nearly full."""

    model_config = keys_without("disk_")


class DeploySettings(StrictModel):
    """How a deploy goes over the workers: how many at a time, and how many percent of them it may leave out.

    `disk_gb` is how large the disks of workers and storage nodes are at least, in 10^9 bytes.
    """

    wave: int = Field(default=10, ge=1)
    max_fail_percentage: int = Field(default=25, ge=0, le=100)
    disk_gb: int = Field(default=500, ge=1)


class Site(StrictModel):
    """A whole site. Build it with `site_file.load`, which also runs the rules that span several nodes.

    `session_host_paths` are folders of the workers that sessions may mount beside their PVCs. `control_api`,
    `node_agent`, `edge` and `package_index` are settings of these services, `images` of the first two, `sessions` of
    the agents, `health` of API and agents, `alerts` and `audit` of the API; what is not said there is left to them.
    `backup` says when the site is backed up, and what is kept. `engine` lends the places of sessions. `overrides` are
    variables of Ansible's roles, for `all` nodes or for those with a role, of which the later ones of NodeRole win.
    """

    name: Name
    engine: Engine = Engine.DIRECT
    slurm: SlurmSettings = SlurmSettings()
    nodes: list[Node] = Field(min_length=1)
    ssh: Ssh = Ssh()
    ports: Ports = Ports()
    storage: list[Storage] = Field(default_factory=list)
    session_storage: Name | None = None
    session_host_paths: list[PlainPath] = Field(default_factory=list)
    gpu: SharedGpus = SharedGpus()
    control_api: ControlApiSettings = ControlApiSettings()
    node_agent: NodeAgentSettings = NodeAgentSettings()
    images: ImageSettings = ImageSettings()
    edge: EdgeSettings = EdgeSettings()
    sessions: SessionSettings = SessionSettings()
    package_index: PackageIndexSettings = PackageIndexSettings()
    backup: BackupSettings = BackupSettings()
    health: Health = Health()
    alerts: Alerts = Alerts()
    audit: Audit = Audit()
    time: Time = Time()
    logs: LogSettings = LogSettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    firewall: Firewall = Firewall()
    hardening: Hardening = Hardening()
    disk: Disk = Disk()
    deploy: DeploySettings = DeploySettings()
    repair: RepairSettings = RepairSettings()
    overrides: dict[Literal["all"] | NodeRole, Overrides] = Field(default_factory=dict)

    def with_role(self, role: NodeRole) -> list[Node]:
        """Return the nodes that have `role`, in the order of the file."""
        return [node for node in self.nodes if role in node.roles]

    @property
    def reservoir(self) -> Node:
        """The node that serves packages, images and files."""
        return self.with_role(NodeRole.RESERVOIR)[0]

    @property
    def master(self) -> Node:
        """The node that runs the control API, its database and the edge."""
        return self.with_role(NodeRole.MASTER)[0]

    @property
    def registries(self) -> list[str]:
        """From where images may be pulled: the reservoir's registry, by the name that every node knows, and others."""
        return list(dict.fromkeys([f"reservoir:{self.ports.registry}", *self.images.registries]))

    def overridden(self, node: Node) -> Overrides:
        """Return the variables of roles that are overridden on a node."""
        found = dict(self.overrides.get("all", {}))
        for role in NodeRole:
            found |= self.overrides.get(role, {}) if role in node.roles else {}
        return found | node.overrides

    @property
    def addresses(self) -> list[IPv4Address]:
        """All addresses of the site's nodes."""
        return [address for node in self.nodes for address in (node.address, node.ib_address) if address]

    @property
    def session_services(self) -> list[str]:
        """The services of the site that every session reaches: console, API, apps, and the reservoir's packages."""
        edge = (self.ports.console, self.ports.api, self.ports.apps)
        return [*(f"{self.master.address}:{port}" for port in edge), f"{self.reservoir.address}:{self.ports.reservoir}"]

    @property
    def console_url(self) -> str:
        """Where people find the console."""
        port = "" if self.ports.console == 443 else f":{self.ports.console}"
        return f"https://{self._called}{port}"

    @property
    def api_url(self) -> str:
        """Where programs find the control API."""
        return f"https://{self._called}:{self.ports.api}"

    def nfs_server(self, storage: NfsStorage) -> Node:
        """Return the node that exports an NFS storage."""
        return next(node for node in self.with_role(NodeRole.STORAGE) if storage.node in (None, node.name))

    @property
    def apps_url(self) -> str:
        """Where people find the apps of their sessions."""
        return f"https://{self._called}:{self.ports.apps}"

    @property
    def apps_shown(self) -> str:
        """What people are told of where apps are."""
        wildcard = self.edge.apps_wildcard
        return f"https://{wildcard}:{self.ports.apps}" if wildcard else self.apps_url

    @property
    def session_pvc_root(self) -> str | None:
        """The folder on every worker below which sessions' PVCs live; None without shared storage."""
        return next((path for _, path in self._session_storages()), None)

    @property
    def session_pvc_storage(self) -> str | None:
        """The name of the storage that has them."""
        return next((name for name, _ in self._session_storages()), None)

    @property
    def _called(self) -> str:
        """How people call the master: by its first name, else by its address."""
        return self.edge.names[0] if self.edge.names else str(self.master.address)

    def _session_storages(self) -> Iterator[tuple[str, str]]:
        """Yield the storages that may carry PVCs, the first of which does, and where workers have them."""
        for storage in self.storage:
            if self.session_storage in (None, storage.name) and (path := worker_path(storage)):
                yield storage.name, path


def worker_path(storage: ExternalStorage | NfsStorage) -> str | None:
    """Return where workers have a storage; None where they do not mount it."""
    if isinstance(storage, ExternalStorage):
        return storage.path
    return storage.mount_path if NodeRole.WORKER in storage.clients else None
