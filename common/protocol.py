"""The protocol of control API and node agent: their messages and paths.

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

from common.checks import Check, CheckState
from common.gpu.kinds import Enforcement
from common.gpu.share import MAX_DEVICES, MAX_GPUS, MILLI, GpuShare
from common.messages import Message, Report, Since, else_read, is_of_later_release
from common.nccl import NcclEvidence
from common.rdma import MAX_HCAS, Hca
from common.sandbox import Sandbox

HEARTBEAT_PATH = "/agent/v1/heartbeat"
"""POST Heartbeat → HeartbeatReply, or 204 where heartbeat and reply are as they were the last time."""
METRICS_PATH = "/agent/v1/metrics"
"""POST MetricsReport → 204: what containers used of their GPUs; not in heartbeats, which mostly repeat themselves."""
DENIED_CALLS_PATH = "/agent/v1/denied-calls"
"""POST DeniedCallReport → 204: which system calls sandboxes denied. Counts only grow, so a report may come twice."""
APP_CALLERS_PATH = "/agent/v1/app-callers"
"""POST AppCallersReport → AppCallersReply: whose connections to apps are open, and which of them have to end."""
AUDIT_HEADS_PATH = "/v1/audit-heads"
"""GET → AuditHeads: how far this node has seen the site's audit log go."""
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
STORAGE_PATH = "/v1/storage"
"""GET ?root=FOLDER → StorageState: the folders of volumes that a storage has, and what it tells of their sizes
· DELETE ?folder=FOLDER → FolderRemoval: removes a folder with what is in it; asked again, it tells how far that is."""

PROTOCOL = 1
"""What agents of this release speak: one more in a release that brings a field with `Since`."""
PROTOCOL_HEADER = "X-Penstock-Protocol"
"""With each heartbeat: what the agent speaks; one that says nothing speaks 0. It is no key of the heartbeat, for an API
of the release before protocols were told refuses keys that it does not know. With the reply to a heartbeat that is not
as the one before: what the API speaks; to one that says nothing no agent reports checks."""
AUDIT_HEAD_HEADER = "X-Penstock-Audit-Head"
"""With each answer to a heartbeat: `SEQ:CODE` of the audit log's last line; nothing where none is kept. It is no key of
the reply, for agents of the last release refuse keys that they do not know, and a repeated heartbeat has no reply."""
MACHINE_HEADER = "X-Penstock-Machine"
"""With each heartbeat: which machine sends it, by another text after each of its starts. A disk that was cloned has the
certificate, the name and the address of its node; that it is another machine shows here alone."""
TIME_HEADER = "X-Penstock-Time"
"""With each heartbeat: when the agent sent it by its own clock, in seconds since 1970."""

NODE_RESTARTED = "its node restarted while it ran"
MACHINE_RESTARTED = "its machine restarted while it ran"
ENGINE_RESTARTED = "the container engine of its node was restarted, and ended it"
"""Why containers are `lost` that were interrupted with all that ran there: the `error` begins so."""

MAX_REASON = 4096
"""Most characters of why something of a node is as it is."""
MAX_CHECKS = 500
"""Most checks of a node: eight of each GPU and link, and those of the machine."""
MAX_FRAME = 1 << 20
"""Bytes of a WebSocket's message: who sends a longer one loses the connection."""
STALLED_S = 600.0
"""So long who speaks over a WebSocket may leave it unread, as a pipe that nobody empties, before it counts as gone."""
STDOUT, STDERR = 1, 2
"""The outputs of a command; bytes are of the first until a `stream` frame says another one."""
CONTAINER_HEADER = "X-Penstock-Container"
"""In the head of a request the edge says at a port of an agent whose port it takes that for: the container's id."""
CALLER_HEADER = "X-Penstock-Caller"
"""Beside it: by which login or key of the site the request comes, for as long as the connection lasts."""

DEFAULT_SHM_MIB = 64
"""MiB of a container's `/dev/shm` where nobody says: as much as Docker gives."""
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


Brief = Annotated[str, Field(max_length=255)]
"""A name, a version, an address."""
Why = Annotated[str, Field(max_length=MAX_REASON)]
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
    `rdma` says that sessions may use them; where it does not, `no_rdma` says why.
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
    the addresses of the other nodes that have containers on it.
    """

    number: int = Field(ge=1, lt=1 << 24)
    subnet: IPv4Network
    address: IPv4Address
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    hosts: dict[str, IPv4Address]
    peers: list[str] = Field(default_factory=list)

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
    container has. Its programs may not call what `sandbox` denies. With `rdma` it gets the HCAs of its node.
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


class FolderState(Report):
    """A folder of a storage, by its path below the root; MiB that are in it and may be, None where nobody can tell."""

    folder: str
    used_mib: int | None = Field(default=None, ge=0)
    limit_mib: int | None = Field(default=None, ge=0)


class StorageState(Report):
    """What a node sees of a storage; `mounted` says that it is the site's, by the marker at its root."""

    mounted: bool
    folders: list[FolderState] = Field(default_factory=list, max_length=100_000)


class FolderRemoval(Report):
    """Whether a folder that is to go is still there, and why removing it failed the last time.

    That it is not says something only where the storage is `mounted`: the site's, by the marker at its root.
    """

    there: bool
    mounted: bool = False
    error: str = ""


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


def _in_one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class CheckReport(Report):
    """A check of a node, as `common.checks.Check` says; `thing` is what of the node it is about.

    `since` is when what it tells of occurred, where its look knows that, as by a log.
    """

    id: Brief = Field(min_length=1)
    name: Brief
    state: CheckState
    thing: Brief = ""
    evidence: Why = ""
    hint: Why = ""
    repair: Brief = ""
    since: datetime | None = None

    @classmethod
    def of(cls, check: Check) -> CheckReport:
        """Return a check as it is reported, its texts in one line: a program's words may have anything in them."""
        return cls(
            id=check.id,
            name=check.name,
            state=check.state,
            thing=check.subject,
            evidence=_in_one_line(check.evidence),
            hint=_in_one_line(check.hint),
            repair=check.repair,
            since=datetime.fromisoformat(check.since) if check.since else None,
        )

    @field_validator("state", mode="before")
    @classmethod
    def _lenient(cls, value: object) -> object:
        """Take a state that only a later release knows for one that is not known."""
        return value if value in list(CheckState) else CheckState.UNKNOWN

    @field_validator("id", "name", "thing", "evidence", "hint", "repair")
    @classmethod
    def _text(cls, value: str) -> str:
        if "\0" in value:
            raise ValueError("a NUL character is not text")
        return value

    @field_validator("evidence", "hint", mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return value[:MAX_REASON] if isinstance(value, str) else value


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


class DeniedCall(Report):
    """System calls that a sandbox denied to processes of one name in one container, from `first_at` to `last_at`.

    `count` is how many since `first_at`, which tells one series from the next. `pid` is that of the last process, as
    the container numbers them. `effect` is the errno, or `killed`. Where an agent had to put many processes or calls
    together, their name is `*`.
    """

    container_id: str
    session_id: str
    call: str = Field(min_length=1, max_length=40)
    process: str = Field(max_length=64)
    pid: int = Field(ge=0)
    effect: str = Field(min_length=1, max_length=24)
    first_at: datetime
    last_at: datetime
    count: int = Field(ge=1)


class DeniedCallReport(Report):
    """Denied system calls of a node; what was not taken is sent again."""

    name: str
    denied_calls: list[DeniedCall] = Field(max_length=1000)


MAX_CALLER = 64
"""Characters of the name of a login or a key."""


class AppCaller(Report):
    """Somebody with connections to a container: `caller` is what the edge says of the login or the key."""

    container_id: str
    caller: str = Field(max_length=MAX_CALLER)


class AppCallersReport(Report):
    """Whose connections are open at the ports of a node."""

    name: str
    callers: list[AppCaller] = Field(max_length=10_000)


class AppCallersReply(Report):
    """Those of them whose connections have to end, and when to report next, in seconds."""

    leave: list[AppCaller]
    interval_s: float = Field(default=5.0, gt=0)


class HeartbeatReply(Report):
    """The API's answer: when to report next, in seconds."""

    interval_s: float = Field(default=5.0, gt=0)


class AuditHead(Report):
    """A line of the audit log by its number and its code."""

    seq: int = Field(ge=0)
    mac: str = Field(pattern=r"^[0-9a-f]{64}$")


class AuditHeads(Report):
    """Lines of the audit log that a node was told of as the last ones, oldest first."""

    heads: list[AuditHead] = Field(default_factory=list, max_length=1000)


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
