"""Queries of accounting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, distinct, false, func, null, or_, select, text, true, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Reach
from api.resources.accounting.schemas import By
from api.tables.accounting import AccountingDay, Span
from api.tables.domains import Domain
from api.tables.projects import Project
from api.tables.sessions import Session
from api.tables.users import User


def add(db: AsyncSession, span: Span) -> None:
    """Add a span to the transaction."""
    db.add(span)


async def ends_of(db: AsyncSession, session_id: UUID) -> Sequence[datetime | None]:
    """Return when the spans of a session ended; None for the one that has not."""
    return (await db.scalars(select(Span.ended_at).where(Span.session_id == session_id))).all()


async def session_of(db: AsyncSession, session_id: UUID) -> Session | None:
    """Return a session as it is by now."""
    return await db.get(Session, session_id, populate_existing=True)


async def domain_id(db: AsyncSession, name: str | None) -> UUID | None:
    """Return the id of the domain of that name."""
    return await db.scalar(select(Domain.id).where(Domain.name == name))


async def close(db: AsyncSession, session_id: UUID, at: datetime) -> None:
    """End the open span of a session."""
    query = update(Span).where(Span.session_id == session_id, Span.ended_at.is_(None))
    # a clock that was put back makes no time that is less than none
    await db.execute(query.values(ended_at=func.greatest(Span.started_at, at)))


@dataclass(frozen=True)
class Wanted:
    """What a report is of: a period, and what is within reach, as their own for the user of an id."""

    starts_at: datetime
    ends_at: datetime
    reach: Reach
    user_id: UUID


async def spans_within(db: AsyncSession, wanted: Wanted, by: By | None) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return what the spans come to, by whose they are or all together: sessions, seconds, milli-GPU-seconds.

    Before these stands whose they are: an id, a name, and the id once more, None where there is none of that id any
    more.
    """
    end = func.least(func.coalesce(Span.ended_at, wanted.ends_at), wanted.ends_at)
    seconds = func.extract("epoch", end - func.greatest(Span.started_at, wanted.starts_at))
    count = func.count(distinct(Span.session_id))
    query = _by(Span, by, (count, func.sum(seconds), func.sum(seconds * Span.gpu_milli)))
    query = query.where(Span.started_at < wanted.ends_at)
    query = query.where(or_(Span.ended_at.is_(None), Span.ended_at > wanted.starts_at))
    return list(await db.execute(query.where(await _within(db, Span, wanted))))


async def days_within(db: AsyncSession, wanted: Wanted, by: By | None) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return the same of the days that begin in the period, of whose spans the sums are left."""
    columns = (AccountingDay.sessions, AccountingDay.seconds, AccountingDay.gpu_milli_seconds)
    query = _by(AccountingDay, by, tuple(func.sum(column) for column in columns))
    query = query.where(AccountingDay.day >= wanted.starts_at, AccountingDay.day < wanted.ends_at)
    return list(await db.execute(query.where(await _within(db, AccountingDay, wanted))))


async def add_up(db: AsyncSession, before: datetime, limit: int) -> int:
    """Put sums by day in the place of the spans of so many sessions that ended before a moment; returns how many."""
    return len((await db.execute(_ADD_UP, {"before": before, "limit": limit})).all())


_ADD_UP = text("""
WITH whose AS (
    SELECT DISTINCT session_id FROM spans WHERE ended_at < :before AND NOT EXISTS (
        SELECT FROM spans later WHERE later.session_id = spans.session_id
        AND (later.ended_at IS NULL OR later.ended_at >= :before)
    ) LIMIT :limit
), gone AS (
    DELETE FROM spans USING whose WHERE spans.session_id = whose.session_id RETURNING spans.*
), parts AS (
    SELECT gone.*, day,
        EXTRACT(epoch FROM LEAST(ended_at, day + interval '24 hours') - GREATEST(started_at, day)) AS seconds,
        started_at >= day AND started_at = MIN(started_at) OVER (PARTITION BY session_id) AS begins
    FROM gone, generate_series(
        date_trunc('day', started_at, 'UTC'), ended_at, interval '24 hours'
    ) AS day
), written AS (
    INSERT INTO accounting_days (
        day, user_id, user_name, project_id, project_name, domain_id, domain, sessions, seconds, gpu_milli_seconds
    )
    SELECT day, user_id, user_name, project_id, project_name, domain_id, domain,
        COUNT(*) FILTER (WHERE begins), SUM(seconds), SUM(seconds * gpu_milli)
    FROM parts GROUP BY day, user_id, user_name, project_id, project_name, domain_id, domain
)
SELECT session_id FROM whose
""")
"""One statement: no report sees both the spans and their sums, or neither."""


def _by(table: type[Span | AccountingDay], by: By | None, sums: tuple[Any, ...]) -> Select[*tuple[Any, ...]]:
    if by is None:
        return select(null().label("id"), null().label("name"), null().label("there"), *sums)
    id_, name, there = {
        By.USER: (table.user_id, table.user_name, User.id),
        By.PROJECT: (table.project_id, table.project_name, Project.id),
        By.DOMAIN: (table.domain_id, table.domain, Domain.id),
    }[by]
    return select(id_, name, there, *sums).outerjoin(there.class_, there == id_).group_by(id_, name, there)


async def _within(db: AsyncSession, table: type[Span | AccountingDay], wanted: Wanted) -> ColumnElement[bool]:
    reach = wanted.reach
    if reach.everything:
        return true()
    return or_(
        table.domain_id == await domain_id(db, reach.domain) if reach.domain else false(),
        table.project_id.in_(reach.projects),
        table.user_id == wanted.user_id if reach.own else false(),
    )
