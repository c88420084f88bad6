"""The nodes as the scheduler sees them: plain columns, read again only when something of them has changed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Text, cast, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import among, fingerprint
from api.resources.groups import service as groups
from api.resources.groups.permissions import Permissions
from api.resources.groups.selection import is_model
from api.resources.nodes import traits
from api.resources.nodes.repository import IS_OPEN, THIS_DATABASE
from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import GpuState, NodeSnapshot, Workload
from api.tables.nodes import Gpu, Node
from common.gpu.kinds import Enforcement
from common.gpu.share import GpuShare

READ_ANYWAY_S = 600
"""The nodes are read again after so long, whatever their version says."""

_COLUMNS = (
    Node.id,
    Node.revision,
    Node.name,
    IS_OPEN.label("open"),
    Node.mode,
    Node.orphaned_milli,
    Node.cpu_milli,
    Node.memory_mib,
    Node.switch,
    Node.fractions,
    Node.apart,
    Node.nvlink,
    Node.rdma,
    Node.no_rdma,
    Node.missing_storages,
    Node.protocol,
    Node.unhealthy,
    Node.withheld,
    Node.foreign_cpu_milli,
    Node.foreign_memory_mib,
)

_SNAPSHOT = cast(func.pg_current_snapshot(), Text)
"""Another one after each commit."""
_VERSIONS = select(
    _SNAPSHOT, fingerprint(Node.id, Node.revision), THIS_DATABASE, groups.version_of_people(), *groups.version()
)


class Fleet:
    """All nodes with their GPUs and groups, and who may use these, as of the last `refresh`."""

    def __init__(self) -> None:
        """Start without any."""
        self.nodes: tuple[NodeSnapshot, ...] = ()
        self.ids: dict[str, UUID] = {}
        self.gpu_models: tuple[str, ...] = ()
        self.version: tuple[object, ...] | None = None
        self.rights: tuple[object, ...] = ()
        """What is another value whenever somebody may use other groups than before, or the database is another one."""
        self.permissions = Permissions([], {})
        self._permitted_by: tuple[object, ...] | None = None
        self._known: dict[UUID, tuple[int, NodeSnapshot]] = {}
        self._cluster: ClusterState | None = None

    async def refresh(self, db: AsyncSession) -> object:
        """Read what has changed of the nodes; returns what is another value whenever something has."""
        snapshot, nodes, this, of_people, *of_groups = (await db.execute(_VERSIONS)).one()
        rights, permissions, permitted_by = (this, of_people, *of_groups), self.permissions, self._permitted_by
        if rights != permitted_by:
            permissions = await groups.permissions(db)
            # what was committed between the two may be undone later: then the version is this one again
            permitted_by = rights if await db.scalar(select(_SNAPSHOT)) == snapshot else None
        version = (nodes, (this, *of_groups), int(time.monotonic()) // READ_ANYWAY_S)
        if version != self.version:
            await self._read(db, anew=self.version is None or version[1:] != self.version[1:])
            self.version = version
        # together, and last: another one may have refreshed meanwhile, and know less
        self.rights, self.permissions, self._permitted_by = rights, permissions, permitted_by
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

    async def _read(self, db: AsyncSession, *, anew: bool) -> None:
        """Read the nodes that have changed, or all `anew`; those that are as they were stay the same objects."""
        revisions = {row.id: row.revision for row in await db.execute(select(Node.id, Node.revision))}
        known = {} if anew else {id_: node for id_, node in self._known.items() if revisions.get(id_) == node[0]}
        before = {node.name: node for node in self.nodes}
        for row, node in await _described(db, None if anew else revisions.keys() - known.keys()):
            same = before.get(node.name)
            known[row.id] = row.revision, same if same == node else node
        self._known = known
        nodes = {node.name: (id_, node) for id_, (_, node) in known.items()}
        self.ids = {name: nodes[name][0] for name in sorted(nodes)}
        if (found := tuple(nodes[name][1] for name in self.ids)) != self.nodes:
            self.gpu_models = tuple(sorted({gpu.model for node in found for gpu in node.gpus}))
            self.nodes, self._cluster = found, None


async def _described(
    db: AsyncSession, ids: Collection[UUID] | None
) -> list[tuple[Row[*tuple[Any, ...]], NodeSnapshot]]:
    """Return nodes with their rows: some, or all."""
    of_nodes, of_gpus = (true(), true()) if ids is None else (among(Node.id, ids), among(Gpu.node_id, ids))
    gpus: defaultdict[UUID, list[GpuState]] = defaultdict(list)
    place = (Gpu.node_id, Gpu.index, Gpu.uuid, Gpu.model, Gpu.island)
    known = select(*place, Gpu.enforcement, Gpu.capacity_milli, Gpu.parent).where(of_gpus)
    for node_id, index, uuid, model, island, kind, capacity, parent in await db.execute(
        known.order_by(Gpu.node_id, Gpu.index)
    ):
        gpus[node_id].append(GpuState(index, uuid, model, island, Enforcement(kind), capacity, slice=bool(parent)))
    by_node = await groups.by_node(db, ids)
    rows = await db.execute(select(*_COLUMNS).where(of_nodes).order_by(Node.name))
    return [(row, _node(row, tuple(gpus[row.id]), by_node.get(row.name, ()))) for row in rows]


def _node(row: Row[*tuple[Any, ...]], gpus: tuple[GpuState, ...], of_groups: tuple[str, ...]) -> NodeSnapshot:
    return NodeSnapshot(
        name=row.name,
        gpus=gpus,
        cpu_milli=row.cpu_milli,
        memory_mib=row.memory_mib,
        groups=of_groups,
        switch=row.switch,
        open=row.open,
        fractions=row.fractions,
        apart=row.apart,
        lacks=traits.lacking(nvlink=row.nvlink, rdma=row.rdma, no_rdma=row.no_rdma),
        missing_storages=tuple(sorted(row.missing_storages)),
        protocol=row.protocol,
        unhealthy=row.withheld or row.unhealthy,
        mode=row.mode.value,
        foreign_cpu_milli=row.foreign_cpu_milli,
        foreign_memory_mib=row.foreign_memory_mib,
        orphaned=tuple(
            GpuShare(gpu.uuid, gpu.index, milli) for gpu in gpus if (milli := row.orphaned_milli.get(gpu.uuid))
        ),
    )
