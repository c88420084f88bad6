"""Queries of what is kept by the hour: how busy GPUs were, and how many the site had."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Double, Integer, Row, Select, and_, cast, delete, func, literal, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.accounting import repository
from api.resources.accounting.repository import Wanted
from api.resources.accounting.schemas import By
from api.tables.accounting import BusyHour, SiteHour, Span
from api.tables.nodes import Gpu

HOUR_S = 3600
SAMPLE_S = 15.0
"""Agents take a sample as often, which tells of the time since the one before."""
FORGOTTEN = 5000
"""So many hours of sessions are deleted by one statement."""


async def busy_within(db: AsyncSession, wanted: Wanted, by: By) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return of how much of what the spans held it is known how busy it was, and how busy, by whose they are.

    Both are milli-GPU-seconds, after an id, a name, and the id once more, None where there is none of that id any more.
    An hour that the period cuts is taken to be as busy in each of its parts.
    """
    query = await _busy(db, wanted, repository.by_whose(by))
    return list(await db.execute(query.having(func.count() > 0)))


async def busy_over_time(db: AsyncSession, wanted: Wanted, step_s: int) -> Sequence[Row[int, float, float]]:
    """Return the same of all together, by the number of the step in which an hour begins; the first has what is cut."""
    since_s = int(wanted.starts_at.timestamp())
    number = func.greatest(0, (BusyHour.hour - since_s // HOUR_S) * HOUR_S // step_s)
    query = await _busy(db, wanted, select(cast(number, Integer).label("number")))
    return (await db.execute(query.group_by("number"))).all()


async def _busy(db: AsyncSession, wanted: Wanted, of: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    begin = func.greatest(Span.started_at, wanted.starts_at)
    end = func.least(func.coalesce(Span.ended_at, wanted.ends_at), wanted.ends_at)
    from_s, until_s = (func.date_part("epoch", moment, type_=Double) for moment in (begin, end))
    first, last = (cast(func.floor(moment / HOUR_S), Integer) for moment in (from_s, until_s))
    hour, series = BusyHour.hour, cast(BusyHour.series, Double)
    here = func.least(until_s, (hour + 1) * HOUR_S) - func.greatest(from_s, hour * HOUR_S)
    seconds = func.least(here, BusyHour.samples * SAMPLE_S / series)
    covered = Span.gpu_milli * seconds
    # of what is held one can be busy with more than that: shares that nobody else wants just now
    busy = func.least(covered, BusyHour.busy_permille * series / BusyHour.samples * seconds)
    of = of.join(BusyHour, and_(BusyHour.session_id == Span.session_id, hour.between(first, last)))
    of = of.where(await repository.held(db, wanted), BusyHour.samples > 0, Span.gpu_milli > 0, here > 0)
    return of.add_columns(func.sum(covered), func.sum(busy))


async def gpus_over_time(db: AsyncSession, starts_at: datetime, ends_at: datetime) -> Sequence[Row[int, int]]:
    """Return the milli-GPU that the site had in the hours of a period, after their numbers since 1970, in order."""
    first, last = (int(moment.timestamp()) // HOUR_S for moment in (starts_at, ends_at))
    query = select(SiteHour.hour, SiteHour.gpu_milli).where(SiteHour.hour.between(first, last))
    return (await db.execute(query.order_by(SiteHour.hour))).all()


async def note_gpus(db: AsyncSession, at: datetime) -> None:
    """Note what the site has of GPUs, once an hour."""
    gpus = select(literal(int(at.timestamp()) // HOUR_S), func.coalesce(func.sum(Gpu.capacity_milli), 0))
    await db.execute(insert(SiteHour).from_select(["hour", "gpu_milli"], gpus).on_conflict_do_nothing())


async def forget(db: AsyncSession, before: datetime) -> int:
    """Delete some of the hours that ended before a moment; returns of how many hours of sessions."""
    last = int(before.timestamp()) // HOUR_S
    await db.execute(delete(SiteHour).where(SiteHour.hour < last))
    old = select(BusyHour.session_id, BusyHour.hour).where(BusyHour.hour < last).limit(FORGOTTEN).subquery()
    here = and_(BusyHour.session_id == old.c.session_id, BusyHour.hour == old.c.hour)
    return len((await db.execute(delete(BusyHour).where(here).returning(BusyHour.hour))).all())
