"""Snapshot and decision: what the scheduler sees and answers, as immutable values; milli-GPU, microseconds.

Everything is an integer or a text, so that the same snapshot always gives the same decision, on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from common.gpu.kinds import Enforcement
from common.gpu.share import MILLI, GpuShare
from common.topology import TopologyLevel

MAX_CONTAINERS_PER_NODE = 100
UNLIMITED = 0
"""A node whose `cpu_milli` or `memory_mib` is unknown is not limited by it."""
NO_CAP = 1 << 62
"""What a project may hold that has no limit."""


class Resource(StrEnum):
    """What a project may have a quota of beside GPUs: CPU, in thousandths of one, and memory, in MiB."""

    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a project has of such a resource: its quota, and no more than `limit` beyond it; None: what is spare."""

    quota: int
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU of a node. GPUs of one `island` reach each other by NVLink, or at least within one NUMA node.

    `enforcement` is how shares of it are held. One that is a `slice` of a GPU (a MIG device) goes whole to one
    container that asks for no more than its `capacity_milli`; what asks for a whole GPU or more never gets slices.
    """

    index: int
    uuid: str
    model: str = ""
    island: int = 0
    enforcement: Enforcement = Enforcement.NONE
    capacity_milli: int = MILLI
    slice: bool = False


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node as it is without any workload on it.

    `open` says whether it takes new work (a node in maintenance or a lost one does not, but its workloads still count).
    `fractions` says whether its GPUs can be shared; its slices can be given out in any case. `switch` names its leaf
    switch, empty where that is not known. Where it is `apart`, no container may have GPUs of two islands, and several
    of one session cannot meet. One that is not open because it is `unhealthy` says which checks fail. Its `mode` is
    what an administrator wants of it: `active`, `maintenance` or `draining`. What its
    `orphaned` containers hold of GPUs is nobody's to give. It `lacks` some traits, each with the reason. A node in no
    group is open to everybody. It is not open to what mounts one of its `missing_storages`. Its agent speaks a
    `protocol`, and takes what needs no later one. Others have `foreign_cpu_milli` and `foreign_memory_mib` of it.
    """

    name: str
    gpus: tuple[GpuState, ...] = ()
    cpu_milli: int = UNLIMITED
    memory_mib: int = UNLIMITED
    groups: tuple[str, ...] = ()
    lacks: tuple[tuple[str, str], ...] = ()
    switch: str = ""
    open: bool = True
    fractions: bool = True
    apart: bool = False
    missing_storages: tuple[str, ...] = ()
    protocol: int = 0
    unhealthy: str = ""
    mode: str = "active"
    orphaned: tuple[GpuShare, ...] = ()
    foreign_cpu_milli: int = 0
    foreign_memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class ProjectState:
    """A project. Without `over_quota` its quota is a hard cap.

    `weight` is its part of what is spare; None: its quota; 0: only what nobody with a part wants. Its work is not
    reclaimed before it ran `min_runtime_s`; None: as the site says. With `over_quota` it holds no more than
    `limit_milli`; None: what is spare. Without `cpu` or `memory` nothing of these is guaranteed, and none refused.
    `had_milli` is what it had lately beyond its quota, on average; 0 where that does not count. Where its `domain` is
    among those that share, it has its part inside of that one's.
    """

    name: str
    quota_milli: int
    over_quota: bool = True
    weight: int | None = None
    min_runtime_s: int | None = None
    limit_milli: int | None = None
    cpu: Bounds | None = None
    memory: Bounds | None = None
    had_milli: int = 0
    domain: str = ""

    def bounds(self, resource: Resource) -> Bounds | None:
        """What it has of a resource beside GPUs."""
        return self.cpu if resource is Resource.CPU else self.memory

    def cap_of(self, bounds: Bounds) -> int:
        """The most that it may hold where it has these bounds."""
        if not self.over_quota:
            return bounds.quota
        return NO_CAP if bounds.limit is None else bounds.limit

    @property
    def weight_milli(self) -> int:
        """By what it has its part of what is spare: a weight of 4 is worth a quota of 4 GPUs, and 0 is no part."""
        return self.quota_milli if self.weight is None else self.weight * MILLI

    @property
    def cap_milli(self) -> int:
        """The most that it may hold."""
        if not self.over_quota:
            return self.quota_milli
        return NO_CAP if self.limit_milli is None else self.limit_milli


@dataclass(frozen=True, slots=True)
class DomainState:
    """A domain whose projects share inside of it, in milli-GPU.

    They have `quota_milli` together before anything is spare, or what is guaranteed to them where that is more. Its
    part of what is spare then is its `weight`, as of a project. In all they hold no more than `limit_milli`; None: what
    is spare.
    """

    name: str
    quota_milli: int = 0
    weight: int | None = None
    limit_milli: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A session as the scheduler sees it: `replicas` equal containers that start together or not at all.

    `gpu_milli`, `cpu_milli` and `memory_mib` are for one container; `gpu_milli` 0 is work that needs no GPU. A share of
    2,500 is two whole GPUs and half of a third, all on one node. `groups` are the resource groups that it may use, in
    order of preference: None is every one; a node in no group is always allowed unless `grouped_only`. Of several nodes
    all must lie in one group. `gpu_models` are the GPU models that will do; empty: any. Its shares are held by
    `enforcement` or a stronger kind. A workload that is not `preemptible` lives within its project's quota and is never
    reclaimed. A higher `priority` goes first within a project. `held_milli` is what it takes with all containers where
    it has places: a slice counts whole. Without `on_slices` it gets none. A `private` one is not named to others.
    It mounts something of `storages`, and runs only on nodes that lack none of its `traits`.
    `limit_s` is for how long it runs at most; 0 where nobody knows. It came back to the queue last at `requeued_at`,
    and tells so while it runs again. It was moved `moves` times, last at `moved_at`. Agents have to speak its
    `protocol`, or a later one. With `max_replicas` it is elastic: it starts with `min_replicas`, gets more while there
    is room, and gives these up first.
    """

    id: str
    project: str
    submitted_at: int
    name: str = ""
    replicas: int = 1
    gpu_milli: int = MILLI
    cpu_milli: int = 0
    memory_mib: int = 0
    preemptible: bool = True
    priority: int = 50
    groups: tuple[str, ...] | None = None
    grouped_only: bool = False
    gpu_models: tuple[str, ...] = ()
    within: TopologyLevel = TopologyLevel.ANYWHERE
    within_required: bool = False
    enforcement: Enforcement = Enforcement.NONE
    storages: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()
    held_milli: int = 0
    on_slices: bool = True
    private: bool = False
    requeued_at: int = 0
    limit_s: int = 0
    moves: int = 0
    moved_at: int = 0
    protocol: int = 0
    min_replicas: int = 0
    max_replicas: int = 0

    @property
    def is_elastic(self) -> bool:
        """Whether its containers become more and fewer while it runs."""
        return self.max_replicas > self.min_replicas > 0

    @property
    def needs_network(self) -> bool:
        """Whether its containers meet on a network of their own."""
        return self.replicas > 1 or self.is_elastic

    @property
    def waiting_since(self) -> int:
        """Since when it waits; one that was reclaimed waits anew, or it would have waited longest at once."""
        return max(self.submitted_at, self.requeued_at)

    @property
    def total_milli(self) -> int:
        """What all its containers take together, in milli-GPU; before it has places, what they ask for."""
        return self.held_milli or self.replicas * self.gpu_milli

    def amount(self, resource: Resource) -> int:
        """What all its containers take together of a resource beside GPUs."""
        return self.replicas * (self.cpu_milli if resource is Resource.CPU else self.memory_mib)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one container runs; `shares` is empty for one that needs no GPU."""

    node: str
    shares: tuple[GpuShare, ...] = ()


def taking(workload: Workload, placements: Sequence[Placement]) -> Workload:
    """Return the workload as it is on these places, where it may take more than it asks for."""
    milli = sum(share.milli for placement in placements for share in placement.shares)
    return workload if milli == workload.total_milli else replace(workload, held_milli=milli)


@dataclass(frozen=True, slots=True)
class Running:
    """A workload that holds its places. One that is `terminating` is being stopped already and will release them.

    `ends_at` is when it ends at the latest; 0 where nobody knows. Of an elastic one `ranks` are those of its containers
    in the order of the places (empty: from 0 on), `leaving` those of containers that are being stopped; it gets no more
    of them before `grows_at` (0: at no time), and none outside of its `reach` (empty: anywhere). Inside of the
    scheduler it is taken to parts (`elastic`): `part_of` names the gang of a further container, and `extras` are those
    that go before the core does.
    """

    workload: Workload
    placements: tuple[Placement, ...]
    since: int
    terminating: bool = False
    ends_at: int = 0
    ranks: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()
    grows_at: int = 0
    reach: tuple[str, ...] = ()
    part_of: str = ""
    extras: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """What the administrator may set; seconds.

    A preemptible workload is not reclaimed before it ran `min_runtime_s`, where its project says nothing else. One that
    waits longer than `reserve_after_s` for room that its project is entitled to gets places reserved, and only what
    does not delay it is placed before it. For one that waits longer than `strict_order_after_s` its project's quota is
    kept also behind work that may stay for a time that nobody knows, and places where its project runs. With
    `consolidation`, running work is moved where that lets somebody start who is entitled to room and waits otherwise:
    no more than `moves_per_hour` in an hour, and each no more than `moves_per_session` times.
    """

    min_runtime_s: int = 0
    reserve_after_s: int = 60
    strict_order_after_s: int = 3600
    consolidation: bool = False
    moves_per_hour: int = 10
    moves_per_session: int = 1

    def least_runtime_s(self, project: ProjectState | None) -> int:
        """Return how long work of a project runs before it is reclaimed."""
        own = project.min_runtime_s if project else None
        return self.min_runtime_s if own is None else own


@dataclass(frozen=True, slots=True)
class Networks:
    """Networks between containers of a session: how many the site has room for, and how many of them are free."""

    count: int
    free: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment.

    `reservations`, who was `nominated` and who was `left_out` are those of the decision before: what was kept stays
    kept. `domains` are those whose projects share inside of them. Without `networks` there are as many as anybody
    wants.
    """

    now: int
    nodes: tuple[NodeSnapshot, ...]
    projects: tuple[ProjectState, ...]
    running: tuple[Running, ...] = ()
    queue: tuple[Workload, ...] = ()
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    reservations: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)
    nominated: tuple[str, ...] = ()
    domains: tuple[DomainState, ...] = ()
    networks: Networks | None = None
    left_out: tuple[str, ...] = ()


class Cause(StrEnum):
    """Why a workload waits, for programs; people read the text beside it."""

    NEVER_FITS = "never-fits"
    QUOTA = "quota"
    FAIR_SHARE = "fair-share"
    NO_ROOM = "no-room"
    NO_NODE = "no-node"
    RESERVED = "reserved"
    RECLAIMING = "reclaiming"
    NO_NETWORK = "no-network"


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a workload waits, and its place in the queue, from 1."""

    cause: Cause
    reason: str
    position: int


@dataclass(frozen=True, slots=True)
class Reclaim:
    """A running workload to be reclaimed, and the waiting one that it makes room for.

    One that is `moved` has places of its own kept for it elsewhere. Of an elastic one only the containers of these
    `ranks` go, if any are named, and the others go on.
    """

    victim: str
    beneficiary: str
    reason: str
    moved: bool = False
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Decision:
    """Every workload of the queue stands in one of both: placed (one placement a container), or waiting.

    `log` has one line for each decision, in the order in which they were taken, with its reason. `reservations` are
    the places that nobody else gets, as a workload that waits is nominated for them, or they are reserved for it, or
    one that is moved goes there. For the `nominated` ones others were stopped; for those `left_out` no victims were
    looked for, as that would take too long. `grown` are the places of further containers of elastic ones that run, by
    rank; `reach` are the nodes that those which start may grow to. `not_grown` says of those that could have further
    ones why they get none.
    """

    placements: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)
    reclaims: tuple[Reclaim, ...] = ()
    pending_reasons: Mapping[str, PendingReason] = field(default_factory=dict)
    log: tuple[str, ...] = ()
    grown: Mapping[str, Mapping[int, Placement]] = field(default_factory=dict)
    reach: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reservations: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)
    nominated: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    not_grown: Mapping[str, str] = field(default_factory=dict)

    def reserved_on(self, id_: str) -> list[str]:
        """Return the nodes on which places are kept for a workload."""
        return sorted({place.node for place in self.reservations.get(id_, ())})
