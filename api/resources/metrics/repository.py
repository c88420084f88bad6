"""Queries of metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Row, delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.metrics import GpuSample
from api.tables.nodes import Node
from api.tables.sessions import Container, Session

CHUNK = 2000
"""So many samples are written by one statement, which takes 65,535 values."""


FORGOTTEN = 20_000
"""So many are deleted by one statement."""


async def known_containers(db: AsyncSession, node: str, sessions: Collection[UUID]) -> list[tuple[UUID, int, int]]:
    """Return session, attempt and rank of the containers that these sessions have on a node."""
    query = select(Session.id, Session.attempt, Container.rank).join(Container, Container.session_id == Session.id)
    query = query.join(Node, Node.id == Container.node_id).where(Node.name == node, Session.id.in_(sessions))
    return [(row.id, row.attempt, row.rank) for row in await db.execute(query)]


async def add(db: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Write samples; one that is there already stays as it is."""
    for start in range(0, len(rows), CHUNK):
        await db.execute(insert(GpuSample).values(rows[start : start + CHUNK]).on_conflict_do_nothing())


async def count_series(db: AsyncSession, session_id: UUID, since_s: int, until_s: int) -> int:
    """Return of how many containers and GPUs a session has samples in a time."""
    series = select(GpuSample.rank, GpuSample.uuid).where(*_within(session_id, since_s, until_s)).distinct()
    return (await db.scalar(select(func.count()).select_from(series.subquery()))) or 0


async def points(db: AsyncSession, session_id: UUID, since_s: int, until_s: int, step_s: int) -> Sequence[Row[Any]]:
    """Return rank, uuid, start, memory, busy time and processes of each step that has samples, in order."""
    start = ((GpuSample.at_s - since_s) // step_s).label("step")
    query = (
        select(
            GpuSample.rank,
            GpuSample.uuid,
            start,
            func.max(GpuSample.memory_mib).label("memory_mib"),
            func.avg(GpuSample.busy_permille).label("busy_permille"),
            func.max(GpuSample.processes).label("processes"),
        )
        .where(*_within(session_id, since_s, until_s))
        # by its name: written out again, its values would make it another expression to PostgreSQL
        .group_by(GpuSample.rank, GpuSample.uuid, "step")
        .order_by(GpuSample.rank, GpuSample.uuid, "step")
    )
    return (await db.execute(query)).all()


async def forget(db: AsyncSession, before_s: int) -> int:
    """Delete some of the samples from before a moment; returns how many."""
    key = (GpuSample.session_id, GpuSample.rank, GpuSample.uuid, GpuSample.at_s)
    old = select(*key).where(GpuSample.at_s < before_s).order_by(GpuSample.at_s).limit(FORGOTTEN)
    return len((await db.execute(delete(GpuSample).where(tuple_(*key).in_(old)).returning(GpuSample.at_s))).all())


def _within(session_id: UUID, since_s: int, until_s: int) -> tuple[Any, ...]:
    return GpuSample.session_id == session_id, GpuSample.at_s >= since_s, GpuSample.at_s < until_s
