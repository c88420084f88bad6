"""Queries of metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Integer, Row, and_, cast, delete, distinct, func, select, tuple_, union, union_all
from sqlalchemy.dialects.postgresql import aggregate_order_by, insert
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import rows_of
from api.resources.metrics import packing
from api.tables.accounting import BusyHour
from api.tables.metrics import GpuHour, GpuSample
from api.tables.nodes import Node
from api.tables.sessions import Container, Session

CHUNK = 2000
"""So many samples are written by one statement, which takes 65,535 values."""
PACKED = 20_000
"""So many samples are packed by one statement."""
FORGOTTEN = 5000
"""So many hours are deleted by one statement."""
HOUR = (GpuHour.session_id, GpuHour.rank, GpuHour.uuid, GpuHour.hour)


async def known_containers(db: AsyncSession, node: str, sessions: Collection[UUID]) -> list[tuple[UUID, int, int]]:
    """Return session, attempt and rank of the containers that these sessions have on a node."""
    query = select(Session.id, Session.attempt, Container.rank).join(Container, Container.session_id == Session.id)
    query = query.join(Node, Node.id == Container.node_id).where(Node.name == node, Session.id.in_(sessions))
    return [(row.id, row.attempt, row.rank) for row in await db.execute(query)]


async def add(db: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Write samples; one that is there already stays as it is."""
    for start in range(0, len(rows), CHUNK):
        await db.execute(insert(GpuSample).values(rows[start : start + CHUNK]).on_conflict_do_nothing())


async def pack(db: AsyncSession, before_s: int) -> int:
    """Pack some of the samples from before a moment into their hours; returns how many hours got some.

    They are taken in the order of their keys, so that those of an hour come together and its row is written once.
    """
    key = (GpuSample.session_id, GpuSample.rank, GpuSample.uuid, GpuSample.at_s)
    some = select(*key).where(GpuSample.at_s < before_s).order_by(*key).limit(PACKED)
    taken = delete(GpuSample).where(tuple_(*key).in_(some)).returning(*GpuSample.__table__.c).cte("taken").c
    hour = (taken.session_id, taken.rank, taken.uuid, cast(taken.at_s // packing.HOUR_S, Integer))
    number = packing.packed(taken.at_s, taken.memory_mib, taken.busy_permille, taken.processes)
    rows = select(*hour, func.array_agg(aggregate_order_by(number, taken.at_s))).group_by(*hour)
    new = insert(GpuHour).from_select([*GpuHour.__table__.c.keys()], rows)
    # an agent that had no answer says again what is packed already
    sample, kept = func.unnest(new.excluded.samples).column_valued(), func.unnest(GpuHour.samples).column_valued()
    late = select(sample).where(packing.second(sample).not_in(select(packing.second(kept)))).scalar_subquery()
    values = {"samples": GpuHour.samples.concat(func.array(late))}
    written = new.on_conflict_do_update(index_elements=HOUR, set_=values).returning(GpuHour.session_id, GpuHour.hour)
    changed = (await db.execute(written)).all()
    if changed:
        await _sum_up(db, {(session_id, hour) for session_id, hour in changed})
    return len(changed)


async def _sum_up(db: AsyncSession, hours: Collection[tuple[UUID, int]]) -> None:
    """Write how busy GPUs were in hours of sessions, of which samples may be new."""
    ids = (GpuHour.session_id.type, [id_ for id_, _ in hours])
    given = rows_of({"session_id": ids, "hour": (GpuHour.hour.type, [hour for _, hour in hours])})
    of_hour = and_(GpuHour.session_id == given.c.session_id, GpuHour.hour == given.c.hour)
    each = select(GpuHour, func.unnest(GpuHour.samples).label("sample")).join(given, of_hour).subquery().c
    busy = packing.busy_permille(each.sample)
    series = func.count(distinct(func.row(each.rank, each.uuid)))
    sums = select(each.session_id, each.hour, series, func.count(busy), func.coalesce(func.sum(busy), 0))
    new = insert(BusyHour).from_select([*BusyHour.__table__.c.keys()], sums.group_by(each.session_id, each.hour))
    values = {name: new.excluded[name] for name in ("series", "samples", "busy_permille")}
    await db.execute(new.on_conflict_do_update(index_elements=[BusyHour.session_id, BusyHour.hour], set_=values))


async def count_series(db: AsyncSession, session_id: UUID, since_s: int, until_s: int) -> int:
    """Return of how many containers and GPUs a session has samples in the hours of a time."""
    packed = select(GpuHour.rank, GpuHour.uuid).where(*_hours(session_id, since_s, until_s))
    fresh = select(GpuSample.rank, GpuSample.uuid).where(*_fresh(session_id, since_s, until_s))
    return (await db.scalar(select(func.count()).select_from(union(packed, fresh).subquery()))) or 0


async def points(
    db: AsyncSession, session_id: UUID, since_s: int, until_s: int, step_s: int
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return rank, uuid, start, memory, busy time and processes of each step that has samples, in order."""
    each = select(GpuHour.rank, GpuHour.uuid, GpuHour.hour, func.unnest(GpuHour.samples).label("sample"))
    old = each.where(*_hours(session_id, since_s, until_s)).subquery().c
    packed = select(
        old.rank,
        old.uuid,
        (cast(old.hour, BigInteger) * packing.HOUR_S + packing.second(old.sample)).label("at_s"),
        packing.memory_mib(old.sample).label("memory_mib"),
        packing.busy_permille(old.sample).label("busy_permille"),
        packing.processes(old.sample).label("processes"),
    )
    columns = [GpuSample.__table__.c[column.name] for column in packed.selected_columns]
    fresh = select(*columns).where(*_fresh(session_id, since_s, until_s))
    taken = union_all(packed, fresh).subquery().c
    query = (
        select(
            taken.rank,
            taken.uuid,
            ((taken.at_s - since_s) // step_s).label("step"),
            func.max(taken.memory_mib).label("memory_mib"),
            func.avg(taken.busy_permille).label("busy_permille"),
            func.max(taken.processes).label("processes"),
        )
        .where(taken.at_s >= since_s, taken.at_s < until_s)
        # by its name: written out again, its values would make it another expression to PostgreSQL
        .group_by(taken.rank, taken.uuid, "step")
        .order_by(taken.rank, taken.uuid, "step")
    )
    return (await db.execute(query)).all()


async def forget(db: AsyncSession, before_s: int) -> int:
    """Delete some of the hours that ended before a moment; returns how many."""
    old = select(*HOUR).where(GpuHour.hour < before_s // packing.HOUR_S).order_by(GpuHour.hour).limit(FORGOTTEN)
    return len((await db.execute(delete(GpuHour).where(tuple_(*HOUR).in_(old)).returning(GpuHour.hour))).all())


def _hours(session_id: UUID, since_s: int, until_s: int) -> tuple[Any, ...]:
    first, last = since_s // packing.HOUR_S, (until_s - 1) // packing.HOUR_S
    return GpuHour.session_id == session_id, GpuHour.hour.between(first, last)


def _fresh(session_id: UUID, since_s: int, until_s: int) -> tuple[Any, ...]:
    return GpuSample.session_id == session_id, GpuSample.at_s >= since_s, GpuSample.at_s < until_s
