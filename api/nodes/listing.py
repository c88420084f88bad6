"""Nodes as people see them: plain columns of a few queries, for lists are long and asked for often."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import among
from api.groups import service as groups
from api.nodes.models import Gpu, Node, NodeMode, NodeState
from api.nodes.schemas import GpuView, NodeView
from api.sessions import upkeep
from reservoir.errors import NotFoundError

GROUPS_S = 5.0
"""For so long the groups of nodes are remembered: they change seldom, and reading them means to look at every GPU."""

_MADE = {"endpoint", "groups", "gpu_milli", "used_milli", "gpus", "sessions"}
_COLUMNS = [getattr(Node, name) for name in NodeView.model_fields if name not in _MADE]
_GPU = [name for name in GpuView.model_fields if name != "used_milli"]
_GPU_COLUMNS = [getattr(Gpu, name) for name in _GPU]

Row = dict[str, Any]


@dataclass(frozen=True)
class Filters:
    """Which nodes to list; None asks for nothing."""

    state: NodeState | None = None
    mode: NodeMode | None = None
    group: str | None = None
    within: frozenset[str] | None = None
    """Resource groups; only nodes of any of them."""


@dataclass(frozen=True)
class Page:
    """Nodes by name, as `NodeView` describes them; after `following` the next page begins, None on the last one."""

    nodes: list[Row]
    following: str | None


class Listing:
    """Lists nodes; one for each process, which remembers their groups for a moment."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._groups: Mapping[str, tuple[str, ...]] = {}
        self._read_at = float("-inf")

    async def page(self, db: AsyncSession, filters: Filters, *, limit: int, after: str | None = None) -> Page:
        """Return a page of the nodes."""
        by_node = await self._groups_of(db)
        conditions = [Node.name > after] if after else []
        conditions += [Node.state == filters.state] if filters.state else []
        conditions += [Node.mode == filters.mode] if filters.mode else []
        if filters.group:
            conditions.append(among(db, Node.name, [name for name, names in by_node.items() if filters.group in names]))
        if filters.within is not None:
            own = [name for name, names in by_node.items() if not filters.within.isdisjoint(names)]
            conditions.append(among(db, Node.name, own))
        rows = (await db.execute(select(*_COLUMNS).where(*conditions).order_by(Node.name).limit(limit + 1))).all()
        found = await _complete(db, [dict(row._mapping) for row in rows[:limit]], by_node)
        return Page(found, found[-1]["name"] if len(rows) > limit else None)

    async def one(self, db: AsyncSession, name: str) -> Row:
        """Return one node; raises NotFoundError."""
        row = (await db.execute(select(*_COLUMNS).where(Node.name == name))).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no node {name}", where="name", cure="list the nodes")
        (found,) = await _complete(db, [dict(row._mapping)], await groups.by_node(db))
        return found

    async def _groups_of(self, db: AsyncSession) -> Mapping[str, tuple[str, ...]]:
        if self._read_at + GROUPS_S < time.monotonic():
            self._groups, self._read_at = await groups.by_node(db), time.monotonic()
        return self._groups


async def _complete(db: AsyncSession, rows: list[Row], by_node: Mapping[str, Sequence[str]]) -> list[Row]:
    ids = [row["id"] for row in rows]
    gpus = await _gpus(db, ids)
    live = await upkeep.count_by_node(db, ids)
    for row in rows:
        used = sum(gpu["used_milli"] for gpu in gpus[row["id"]])
        row |= {
            "endpoint": f"tcp://{row['address']}:{row['port']}",
            "groups": list(by_node.get(row["name"], ())),
            "gpu_milli": sum(gpu["capacity_milli"] for gpu in gpus[row["id"]]),
            "used_milli": used,
            "gpus": gpus[row["id"]],
            "sessions": live.get(row["id"], 0),
        }
    return rows


async def _gpus(db: AsyncSession, ids: Collection[UUID]) -> defaultdict[UUID, list[Row]]:
    used = await upkeep.used_by_gpu(db, ids)
    gpus: defaultdict[UUID, list[Row]] = defaultdict(list)
    query = select(Gpu.node_id, *_GPU_COLUMNS).where(among(db, Gpu.node_id, ids)).order_by(Gpu.node_id, Gpu.index)
    for node_id, *values in await db.execute(query):
        gpu = dict(zip(_GPU, values, strict=True))
        gpus[node_id].append(gpu | {"used_milli": used.get((node_id, gpu["uuid"]), 0)})
    return gpus
