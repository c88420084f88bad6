"""The nodes as the scheduler sees them: plain columns, read again only when something of them has changed."""

from __future__ import annotations

import time
from collections import defaultdict
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.groups import service as groups
from api.resources.groups.selection import is_model
from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import GpuState, NodeSnapshot, Workload
from api.tables.nodes import Gpu, Node, NodeMode, NodeState
from common.gpu.kinds import Enforcement

READ_ANYWAY_S = 60
"""The nodes are read again after so long, whatever their version says."""

_DESCRIBED = (
    Node.name,
    Node.state,
    Node.mode,
    Node.unknown_containers,
    Node.clock_offset_s,
    Node.cpu_milli,
    Node.memory_mib,
    Node.switch,
    Node.fractions,
    Node.apart,
    Node.enforcement,
)


class Fleet:
    """All nodes with their GPUs and groups, as of the last `refresh`."""

    def __init__(self) -> None:
        """Start without any."""
        self.nodes: tuple[NodeSnapshot, ...] = ()
        self.ids: dict[str, UUID] = {}
        self.gpu_models: tuple[str, ...] = ()
        self.version: object = None
        self._cluster: ClusterState | None = None

    async def refresh(self, db: AsyncSession) -> object:
        """Read the nodes if they have changed; returns what is another value whenever they have."""
        rows = [tuple(row) for row in await db.execute(select(*_DESCRIBED).order_by(Node.name))]
        kind = (Gpu.enforcement, Gpu.capacity_milli)
        sums = (
            func.count(),
            func.sum(Gpu.index),
            func.sum(Gpu.island),
            func.sum(func.length(Gpu.model)),
            func.sum(func.length(Gpu.parent)),
        )
        known = select(*kind, *sums, func.min(Gpu.uuid), func.max(Gpu.uuid)).group_by(*kind).order_by(*kind)
        gpus = tuple(tuple(row) for row in await db.execute(known))
        # Which GPUs a node has changes with a start of its agent only.
        started = await db.scalar(select(func.max(Node.started_at)))
        version = (hash(tuple(rows)), gpus, started, await groups.version(db), int(time.monotonic()) // READ_ANYWAY_S)
        if version != self.version:
            await self._read(db)
            self.version = version
        return version

    def gpu_models_of(self, wanted: list[str]) -> tuple[str, ...]:
        """Return the GPU models that are meant; what none is stays as it was written, so that nothing has it."""
        meant = [model for model in self.gpu_models if any(is_model(word, model) for word in wanted)]
        return tuple(meant or wanted)

    def never_fits(self, workload: Workload) -> str:
        """Return why a workload could never run on these nodes, or nothing."""
        if self._cluster is None:
            self._cluster = ClusterState(self.nodes)
        return self._cluster.never_fits(workload)

    async def _read(self, db: AsyncSession) -> None:
        gpus: defaultdict[UUID, list[GpuState]] = defaultdict(list)
        place = (Gpu.node_id, Gpu.index, Gpu.uuid, Gpu.model, Gpu.island)
        known = select(*place, Gpu.enforcement, Gpu.capacity_milli, Gpu.parent).order_by(Gpu.node_id, Gpu.index)
        for node_id, index, uuid, model, island, kind, capacity, parent in await db.execute(known):
            state = GpuState(index, uuid, model, island, Enforcement(kind), capacity, slice=bool(parent))
            gpus[node_id].append(state)
        by_node = await groups.by_node(db)
        rows = (await db.execute(select(Node.id, *_DESCRIBED).order_by(Node.name))).all()
        nodes = tuple(
            NodeSnapshot(
                name=row.name,
                gpus=tuple(gpus[row.id]),
                cpu_milli=row.cpu_milli,
                memory_mib=row.memory_mib,
                groups=by_node.get(row.name, ()),
                switch=row.switch,
                open=row.state is NodeState.READY
                and row.mode is NodeMode.ACTIVE
                and not (row.unknown_containers or row.clock_offset_s),
                fractions=row.fractions,
                apart=row.apart,
            )
            for row in rows
        )
        self.ids = {row.name: row.id for row in rows}
        self.gpu_models = tuple(sorted({gpu.model for node in nodes for gpu in node.gpus}))
        if nodes != self.nodes:
            self.nodes, self._cluster = nodes, None
