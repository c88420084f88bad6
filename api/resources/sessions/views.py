"""Bodies of answers of the session endpoints."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from api.resources.schemas import View
from api.tables.projects import Access
from api.tables.sessions import Kind, State
from common.gpu.kinds import Enforcement
from common.protocol import ContainerStatus
from common.sentence import Said
from common.topology import TopologyLevel


class GpuShareView(View):
    """The share of one GPU that a session has, in milli-GPU; of a MIG device by its `profile` it is the whole device.

    `memory_mib` is how much of the GPU's memory belongs to it; null, as `model` is empty, where the node has that GPU
    no more.
    """

    index: int
    uuid: str
    milli: int
    memory_mib: int | None
    model: str
    profile: str


class NcclView(View):
    """What the log of a container says of the ways that NCCL took between GPUs, each with the line that says so.

    `p2p` is the direct way in a node, `ib` InfiniBand (or RoCE) between nodes, `gdrdma` GPUDirect RDMA by that. Null,
    and mostly without a line, is what its log does not tell.
    """

    version: str
    p2p: bool | None
    p2p_line: str
    ib: bool | None
    ib_line: str
    gdrdma: bool | None
    gdrdma_line: str


class ContainerView(View):
    """One container of a session, and the GPUs that it holds on its node.

    `enforcement` is how its shares are held, null before it is known and without a GPU; `warning` is what its agent
    finds wrong while it runs. `nccl` is what NCCL told in its log when it began, where it told something.
    """

    rank: int
    node: str
    status: ContainerStatus | None
    error: str
    exit_code: int | None
    enforcement: Enforcement | None
    warning: str
    nccl: NcclView | None
    gpus: list[GpuShareView]


class ServiceView(View):
    """A port of a session; `url` is where its users reach it, null at a site whose edge offers no apps."""

    port: int
    url: str | None


class DryRunView(View):
    """What would become of sessions that nobody has submitted: `starting` of them would get their places at once.

    Of the first one that would wait, `reason` says why, `cause` for programs, and `position` is its place in the queue
    from 1. The amounts are those of one container, completed by its preset and by what the site gives.
    """

    starting: int
    waiting: int
    reason: Said
    cause: str
    position: int
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    shm_mib: int
    disk_mib: int


class QueueEntryView(View):
    """A session that waits for the scheduler, for nodes of its resource group where it names one.

    `gpu_milli` is for one of its `replicas`.
    """

    id: UUID
    name: str
    project: str
    user: str
    kind: Kind
    group: str
    priority: int
    replicas: int
    gpu_milli: int
    position: int
    cause: str
    reason: Said
    created_at: datetime
    starts_at: datetime | None


class SessionEntryView(View):
    """A session of a list; the amounts are for one of its `replicas`.

    With `p2p` its GPUs reach each other by NVLink, with false (not null) they may not use it; with `rdma` its
    containers meet over InfiniBand. `reason` says why it waits, or why it failed; for programs there is `cause` while
    it waits, and `position`, its place in the queue from 1. `node` and `gpus` are those of its first container.
    `attempt` counts how often it was put back into the queue. An elastic one has `min_replicas` to `max_replicas`
    containers (else 0 and 0), and `replicas` by now. It is stopped when it has run for `limit_s` (0: it asked
    for no limit), or as its project says: `expires_at` is when its time limit ends it, which its owner has put off by
    `extended_s` so far. `ports` are what it asked for, also
    after its end. `urls` are those of `services`, `url` is the first of them.

    Its shares are held by `enforcement` or a stronger kind. `held_milli` is what it takes of GPUs with all containers
    together, 0 before it has its places; a MIG device counts whole. While its share is being changed, `resize_milli` is
    what each container shall have. Its programs run in the `sandbox` of this name (empty: in none), which has `denied`
    them so many system calls so far. `access` says who sees it: its `project`, or as `private` its owner alone of the
    project's members.
    """

    id: UUID
    name: str
    project: str
    user: str
    access: Access
    image: str
    kind: Kind
    priority: int
    preemptible: bool
    replicas: int
    min_replicas: int
    max_replicas: int
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    shm_mib: int
    disk_mib: int
    enforcement: Enforcement
    held_milli: int
    resize_milli: int | None
    preset: str
    group: str
    gpu_models: list[str]
    ports: list[int]
    within: TopologyLevel
    within_required: bool
    p2p: bool | None
    rdma: bool
    local_image: bool
    sandbox: str
    denied: int
    created_by_cli: bool
    state: State
    reason: Said
    cause: str
    position: int
    attempt: int
    created_at: datetime
    starts_at: datetime | None
    scheduled_at: datetime | None
    started_at: datetime | None
    limit_s: int
    expires_at: datetime | None
    extended_s: int
    finished_at: datetime | None
    exit_code: int | None
    node: str | None
    gpus: list[GpuShareView]
    containers: list[ContainerView]
    services: list[ServiceView]
    url: str | None
    urls: list[str]


class SessionEventView(View):
    """A session came to a `state` in its `attempt`; `reason`, and `cause` for programs, say why.

    `exit_code` is that of its containers, where they have ended.
    """

    at: datetime
    state: State
    reason: Said
    cause: str
    attempt: int
    exit_code: int | None


class MountView(View):
    """A `volume` of the project by its name, or a folder of the node, which a session sees at `target`."""

    volume: str | None
    source: str | None
    target: str
    read_only: bool


class SessionView(SessionEntryView):
    """A session with its command line, which may be long, its mounts, and the names of its variables.

    `interrupted` says why it was put back into the queue the last time, at `interrupted_at`. Of an elastic one that
    runs `not_grown` says why it gets no further containers just now, where it could have more.
    """

    command: list[str] | None
    args: list[str]
    environment: list[str]
    mounts: list[MountView]
    interrupted: str
    interrupted_at: datetime | None
    not_grown: Said
