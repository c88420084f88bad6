"""The protocol of control API and node agent: their messages and paths; `*_protocol.py` beside it have more.

The API calls the agent over mutual TLS (`/v1/...` below). The agent posts heartbeats to the API
(`POST /agent/v1/heartbeat`) with its own certificate, whose common name is the node's name.
Every call is idempotent by an id that the caller made.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from common.check_protocol import MAX_CHECKS, CheckReport
from common.gpu.kinds import Enforcement
from common.gpu.share import MAX_DEVICES, MAX_GPUS, MILLI, GpuShare
from common.interfaces import MAX_INTERFACES, Interface
from common.messages import Brief, Message, Report, Since, Why, else_read, is_of_later_release
from common.nccl import NcclEvidence
from common.rdma import MAX_HCAS, Hca
from common.sandbox import Sandbox

HEARTBEAT_PATH = "/agent/v1/heartbeat"
"""POST Heartbeat → HeartbeatReply, or 204 where heartbeat and reply are as they were the last time."""
METRICS_PATH = "/agent/v1/metrics"
"""POST MetricsReport → 204: what containers used of their GPUs; not in heartbeats, which mostly repeat themselves."""
HEALTH_PATH = "/v1/health"
NODE_INFO_PATH = "/v1/node-info"
IMAGES_PATH = "/v1/images"
"""PUT ImageRequest → ImageState: pulls the image unless it is there; asked again, it tells how far the pull is."""
CONTAINERS_PATH = "/v1/containers"
"""GET lists them · PUT /{id} ContainerSpec → ContainerState · DELETE /{id}?grace_s=N → 204 (also when it is gone)
· PUT /{id}/gpus GpuShares → ContainerState: other shares of the same GPUs, while it runs
· GET /{id}/logs?follow=0|1&tail=N → text/plain stream
· WebSocket /{id}/exec?command=JSON-LIST&tty=0|1&rows=N&cols=N&apart=0|1:
binary frames carry bytes both ways; text frames carry ExecControl as JSON; the agent ends with an `exit` frame. To who
asks for it what the command writes comes `apart`: `stream` frames say of which output the bytes are that follow."""

PROTOCOL = 1
"""What agents of this release speak: one more in a release that brings a field with `Since`."""
PROTOCOL_HEADER = "X-Penstock-Protocol"
"""With each heartbeat: what the agent speaks; one that says nothing speaks 0. It is no key of the heartbeat, for an API
of the release before protocols were told refuses keys that it does not know. With the reply to a heartbeat that is not
as the one before: what the API speaks; to one that says nothing no agent reports checks."""
MACHINE_HEADER = "X-Penstock-Machine"
"""With each heartbeat: which machine sends it, by another text after each of its starts. A disk that was cloned has the
certificate, the name and the address of its node; that it is another machine shows here alone."""
TIME_HEADER = "X-Penstock-Time"
"""With each heartbeat: when the agent sent it by its own clock, in seconds since 1970."""

NODE_RESTARTED = "its node restarted while it ran"
MACHINE_RESTARTED = "its machine restarted while it ran"
ENGINE_RESTARTED = "the container engine of its node was restarted, and ended it"
"""Why containers are `lost` that were interrupted with all that ran there: the `error` begins so."""

MAX_FRAME = 1 << 20
"""Bytes of a WebSocket's message: who sends a longer one loses the connection."""
STALLED_S = 600.0
"""So long who speaks over a WebSocket may leave it unread, as a pipe that nobody empties, before it counts as gone."""
STDOUT, STDERR = 1, 2
"""The outputs of a command; bytes are of the first until a `stream` frame says another one."""

DEFAULT_SHM_MIB = 64
"""MiB of a container's `/dev/shm` where nobody says: as much as Docker gives."""
VXLAN_OVERHEAD = 50
"""Bytes that a VXLAN adds to a packet of IPv4."""
USUAL_MTU = 1500
"""Bytes of a packet of containers where nobody says otherwise."""

SYSTEM_FOLDERS = (
    "/proc",
    "/sys",
    "/dev",
    "/etc/ld.so.preload",
    "/etc/penstock",
    "/run/penstock",
    "/usr/lib/penstock",
    # links to those in nearly every image
    "/lib/penstock",
    "/var/run",
    # what the container engine puts there by itself
    "/etc/hostname",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/sbin/docker-init",
    "/usr/sbin/docker-init",
)
"""Folders of a container's system: nothing of the user's may lie over, in or above them."""


def belongs_to_system(target: str) -> bool:
    """Return whether a mount at a path of the container, which has no `..`, would hide something of its system."""
    path = PurePosixPath(target)
    return any(path.is_relative_to(folder) or PurePosixPath(folder).is_relative_to(path) for folder in SYSTEM_FOLDERS)


HeldBy = Annotated[Enforcement, else_read(Enforcement.NONE)]
"""How shares are held, as it is told: what holds them in a later release promises nothing to this one."""


class GpuDevice(Report):
    """One GPU of a node; `memory_mib` in MiB; `simulated` marks a lab's GPU that no hardware stands behind.

    GPUs of one `island` reach each other by NVLink, or at least within one NUMA node. `accelerator` is the plugin that
    found it, `enforcement` how shares of this one are held. A MIG device names the GPU that it is a slice of as its
    `parent`, its `profile` (`1g.10gb`), and as `capacity_milli` how much of that GPU it is; it goes to one container.
    """

    index: int = Field(ge=0)
    uuid: str = Field(min_length=1, max_length=128)
    model: Brief
    memory_mib: int = Field(ge=0)
    simulated: bool = False
    island: int = Field(default=0, ge=0)
    accelerator: Brief = "nvidia"
    enforcement: HeldBy = Enforcement.NONE
    parent: str = Field(default="", max_length=128)
    profile: Brief = ""
    capacity_milli: int = Field(default=MILLI, gt=0, le=MILLI)


class NodeInfo(Report):
    """What a node has. `cpu_milli` is thousandths of a core; `enforcement` is how GPU shares are held on this node: the
    weakest kind among its GPUs. `enforcement_pending` says which kind follows, and what it waits for; empty: none.

    `fractions` says whether its GPUs may be shared, `nvlink` whether some reach each other by it, and `apart` that its
    islands are machines of a cluster: no container may have GPUs of two, and those of one session cannot meet there.
    While it cannot run containers as it should it is `unready`, and says why; what mounts one of `missing_storages`
    cannot run on it, for the reason that stands there by the storage's name. `region` and `switch` (its leaf switch)
    are what the site's file says. `started_at` is when the agent started. `hcas` are its ports of InfiniBand, and
    `rdma` says that sessions may use them; where it does not, `no_rdma` says why. `interfaces` are those of its
    networks that containers do not bring.
    """

    name: Brief
    agent_version: Brief
    engine_version: Brief
    os: Brief
    cpu_milli: int = Field(ge=0)
    memory_mib: int = Field(ge=0)
    gpus: list[GpuDevice] = Field(default_factory=list, max_length=MAX_DEVICES)
    enforcement: HeldBy = Enforcement.NONE
    enforcement_pending: Why = ""
    fractions: bool = True
    nvlink: bool = False
    rdma: bool = False
    no_rdma: Why = ""
    hcas: list[Hca] = Field(default_factory=list, max_length=MAX_HCAS)
    interfaces: list[Interface] = Field(default_factory=list, max_length=MAX_INTERFACES)
    apart: bool = False
    unready: Why = ""
    missing_storages: dict[Brief, Why] = Field(default_factory=dict)
    driver_version: Brief = ""
    cuda_version: Brief = ""
    region: Brief = ""
    switch: Brief = ""
    started_at: datetime | None = None


class GpuShares(Message):
    """New shares of the GPUs that a running container has: the same GPUs, each once."""

    gpus: list[GpuShare] = Field(min_length=1, max_length=MAX_GPUS)


class Mount(Message):
    """A folder of the node that the container sees at `target`."""

    source: str = Field(pattern=r"^/")
    target: str = Field(pattern=r"^/")
    read_only: bool = False


class Pull(StrEnum):
    """Whether an image is pulled: where it is missing, or never (it must be on the node already)."""

    MISSING = "missing"
    NEVER = "never"


class GangNetwork(Message):
    """The network between the containers of one session, as one of these is to have it.

    `number` is the number of its VXLAN, which no other session of the site has. `address` is the container's own in
    `subnet`, `name` its own name, and `hosts` leads from the names of all containers to their addresses. `peers` are
    the addresses of the other nodes that have containers on it; they are sent to from the node's own address `local`,
    where that is not the one by which it is called.
    """

    number: int = Field(ge=1, lt=1 << 24)
    subnet: IPv4Network
    address: IPv4Address
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    hosts: dict[str, IPv4Address]
    peers: list[str] = Field(default_factory=list)
    local: Annotated[str, Since(1)] = ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.hosts.get(self.name) != self.address:
            raise ValueError(f"{self.name} is not at {self.address} among the hosts")
        if strange := [str(address) for address in self.hosts.values() if address not in self.subnet]:
            raise ValueError(f"{strange[0]} is outside of {self.subnet}")
        return self


class ContainerSpec(Message):
    """A container that the API wants to run. `command` None means the image's own; `args` follow it.

    `cpu_milli`, `memory_mib` and `disk_mib` (what it writes beside its mounts) are limits, 0 none; `shm_mib` is part of
    the memory. The container sees as many cores as `cpu_milli` begins. `ports` are those of its ports that the site's
    edge may reach. `network` is where it meets the other containers of its session, beside the network that every
    container has. Its programs may not call what `sandbox` denies. With `rdma` it gets the HCAs of its node. With a
    `lease` it runs only while a step of Slurm holds that on its node.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    session_id: str
    session_name: str
    project: str
    user: str
    image: str
    command: list[str] | None = None
    args: list[str] = Field(default_factory=list)
    environment: dict[str, str] = Field(default_factory=dict)
    gpus: list[GpuShare] = Field(default_factory=list, max_length=MAX_GPUS)
    cpu_milli: int = Field(default=0, ge=0)
    memory_mib: int = Field(default=0, ge=0)
    shm_mib: int = Field(default=DEFAULT_SHM_MIB, ge=1)
    disk_mib: int = Field(default=0, ge=0)
    mounts: list[Mount] = Field(default_factory=list)
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(default_factory=list, max_length=16)
    pull: Pull = Pull.MISSING
    sandbox: Sandbox | None = None
    network: GangNetwork | None = None
    rdma: Annotated[bool, Since(1)] = False
    lease: Annotated[Brief, Since(1)] = ""


class ContainerStatus(StrEnum):
    """Where a container stands, as its agent sees it."""

    PULLING = "pulling"
    CREATING = "creating"
    RUNNING = "running"
    EXITED = "exited"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the container never runs again."""
        return self in (ContainerStatus.EXITED, ContainerStatus.FAILED)


class ContainerState(Report):
    """What an agent knows of one container; `error` says why it failed; times are UTC.

    `ports` leads from a port of the container to the agent's own port, where the site's edge reaches it by mutual TLS.
    `enforcement` is how its GPU shares are held (None: it has no GPU), `warning` what is wrong while it runs. One that
    is `lost` was taken away by no fault of its own, as with a machine that is lost: it may run again elsewhere.
    `nccl` is what the head of its log tells of the ways between GPUs; None: NCCL told nothing there.
    """

    id: str
    session_id: str
    status: ContainerStatus
    exit_code: int | None = None
    error: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    gpus: list[GpuShare] = Field(default_factory=list)
    ports: dict[int, int] = Field(default_factory=dict)
    enforcement: HeldBy | None = None
    warning: str = ""
    lost: bool = False
    nccl: NcclEvidence | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_later_release(cls, told: object) -> object:
        """Read a status that only a later release knows: what says how or when it ended has ended."""
        if not isinstance(told, dict) or not is_of_later_release(told.get("status"), ContainerStatus):
            return told
        if told.get("exit_code") is not None:
            return told | {"status": ContainerStatus.EXITED}
        return told | {"status": ContainerStatus.FAILED if told.get("finished_at") else ContainerStatus.CREATING}


class ImageRequest(Message):
    """An image that the node shall have."""

    reference: str = Field(min_length=1, max_length=512)


class ImageStatus(StrEnum):
    """Whether a node has an image."""

    PULLING = "pulling"
    READY = "ready"
    FAILED = "failed"


class ImageState(Report):
    """What an agent knows of an image; `digest` is its id at the container engine; `error` says why it failed.

    `size` is in bytes. While it is pulled, `pulled` bytes have come of the `size` that is known so far. A failure is
    told once: whoever asks again after it has the image pulled again.
    """

    reference: str
    status: Annotated[ImageStatus, else_read(ImageStatus.PULLING)]
    digest: str = ""
    size: int = Field(default=0, ge=0)
    pulled: int = Field(default=0, ge=0)
    error: str = ""


class Heartbeat(Report):
    """Sent at every interval and at once when a container changes; `boot` tells one run of the agent from the next.

    `checks` are those of the node; an agent of an earlier release reports none.
    """

    name: Brief
    address: Brief
    port: int = Field(ge=1, le=65535)
    boot: str = Field(max_length=64)
    sequence: int = Field(ge=1)
    node_info: NodeInfo
    containers: list[ContainerState] = Field(default_factory=list)
    checks: list[CheckReport] = Field(default_factory=list)

    @field_validator("checks", mode="before")
    @classmethod
    def _readable(cls, value: object) -> object:
        """Leave out what only another release could write: no check is worth the heartbeat that tells of it."""
        return [each for each in value[:MAX_CHECKS] if _is_check(each)] if isinstance(value, list) else []


def _is_check(value: object) -> bool:
    try:
        CheckReport.model_validate(value)
    except ValidationError:
        return False
    return True


class GpuMetrics(Report):
    """What one container used of one GPU: `memory_mib` at the moment `at`, `busy_permille` of the GPU's time since the
    sample before (None where nobody can tell), and how many `processes` of it are on the GPU.
    """

    container_id: str
    session_id: str
    uuid: str
    at: datetime
    memory_mib: int = Field(ge=0)
    busy_permille: int | None = Field(default=None, ge=0, le=1000)
    processes: int = Field(default=0, ge=0)


class MetricsReport(Report):
    """Samples of a node since the report before; a report that was not taken is sent again with later samples."""

    name: str
    samples: list[GpuMetrics] = Field(max_length=10_000)


class HeartbeatReply(Report):
    """The API's answer: when to report next, in seconds."""

    interval_s: float = Field(default=5.0, gt=0)


class ExecControl(Report):
    """A text frame of the terminal: `resize` or `eof` (input ended) from a client, `exit`, `error` or `stream` from the
    agent. `code` is the exit code, or the output that the bytes are of from now on.
    """

    type: str = Field(pattern=r"^(resize|eof|exit|error|stream)$")
    rows: int = 0
    cols: int = 0
    code: int | None = None
    reason: str = ""
    status: int = 0
    """What an answer over HTTP would have as its status, with an `error`; 0 from agents of before."""
