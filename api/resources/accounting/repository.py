"""Queries of accounting."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, false, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Reach
from api.tables.accounting import Span
from api.tables.sessions import Session


def add(db: AsyncSession, span: Span) -> None:
    """Add a span to the transaction."""
    db.add(span)


async def ends_of(db: AsyncSession, session_id: UUID) -> Sequence[datetime | None]:
    """Return when the spans of a session ended; None for the one that has not."""
    return (await db.scalars(select(Span.ended_at).where(Span.session_id == session_id))).all()


async def session_of(db: AsyncSession, session_id: UUID) -> Session | None:
    """Return a session as it is by now."""
    return await db.get(Session, session_id, populate_existing=True)


async def close(db: AsyncSession, session_id: UUID, at: datetime) -> None:
    """End the open span of a session."""
    query = update(Span).where(Span.session_id == session_id, Span.ended_at.is_(None))
    await db.execute(query.values(ended_at=at))


async def overlapping(
    db: AsyncSession, starts_at: datetime, ends_at: datetime, reach: Reach, user_id: UUID
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return session, user, project, domain, milli-GPU, start and end of the spans within reach and in a period.

    `user_id` is whose spans are within reach as their own.
    """
    query = select(
        Span.session_id,
        Span.user_name,
        Span.project_name,
        Span.domain,
        Span.gpu_milli,
        Span.started_at,
        Span.ended_at,
    ).where(Span.started_at < ends_at, or_(Span.ended_at.is_(None), Span.ended_at > starts_at))
    if not reach.everything:
        query = query.where(
            or_(
                Span.domain == reach.domain if reach.domain else false(),
                Span.project_id.in_(reach.projects),
                Span.user_id == user_id if reach.own else false(),
            )
        )
    return (await db.execute(query)).all()
