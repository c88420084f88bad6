"""Queries of denied calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.denied_calls import DeniedSeries
from api.tables.sessions import Session


async def of_sessions(db: AsyncSession, sessions: Collection[UUID], since: datetime) -> Sequence[DeniedSeries]:
    """Return the series of sessions that began at a moment or later."""
    query = select(DeniedSeries).where(DeniedSeries.session_id.in_(sessions), DeniedSeries.first_at >= since)
    return (await db.scalars(query)).all()


async def sizes(db: AsyncSession, sessions: Collection[UUID]) -> dict[UUID, int]:
    """Return how many series sessions have."""
    query = select(DeniedSeries.session_id, func.count()).where(DeniedSeries.session_id.in_(sessions))
    return {row[0]: row[1] for row in await db.execute(query.group_by(DeniedSeries.session_id))}


async def newest(db: AsyncSession, session_id: UUID, limit: int) -> Sequence[DeniedSeries]:
    """Return the series of a session, those that grew last first."""
    query = select(DeniedSeries).where(DeniedSeries.session_id == session_id)
    return (
        await db.scalars(
            query.order_by(DeniedSeries.last_at.desc(), DeniedSeries.call, DeniedSeries.process).limit(limit)
        )
    ).all()


def add(db: AsyncSession, denied: DeniedSeries) -> None:
    """Add a series to the transaction."""
    db.add(denied)


async def count(db: AsyncSession, session_id: UUID, more: int) -> None:
    """Add to the number of calls that a session was denied."""
    await db.execute(update(Session).where(Session.id == session_id).values(denied=Session.denied + more))


async def forget(db: AsyncSession, before: datetime) -> int:
    """Delete the series that have not grown since a moment; returns how many."""
    query = delete(DeniedSeries).where(DeniedSeries.last_at < before).returning(DeniedSeries.session_id)
    return len((await db.scalars(query)).all())
