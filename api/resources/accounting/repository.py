"""Queries of accounting."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, false, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Reach
from api.resources.accounting.schemas import By
from api.tables.accounting import Span
from api.tables.domains import Domain
from api.tables.projects import Project
from api.tables.sessions import Session
from api.tables.users import User

_WHOSE = {
    By.USER: (Span.user_id, Span.user_name, User.id),
    By.PROJECT: (Span.project_id, Span.project_name, Project.id),
    By.DOMAIN: (Span.domain_id, Span.domain, Domain.id),
}


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
    await db.execute(query.values(ended_at=at))


async def overlapping(
    db: AsyncSession, starts_at: datetime, ends_at: datetime, reach: Reach, *, user_id: UUID, by: By
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return whose they are, session, milli-GPU, start and end of the spans within reach and in a period.

    Whose a span is are an id, a name, and the id once more, None where there is none of that id any more. `user_id` is
    whose spans are within reach as their own.
    """
    id_, name, there = _WHOSE[by]
    query = (
        select(id_, name, there, Span.session_id, Span.gpu_milli, Span.started_at, Span.ended_at)
        .outerjoin(there.class_, there == id_)
        .where(Span.started_at < ends_at, or_(Span.ended_at.is_(None), Span.ended_at > starts_at))
    )
    if not reach.everything:
        query = query.where(
            or_(
                Span.domain_id == await domain_id(db, reach.domain) if reach.domain else false(),
                Span.project_id.in_(reach.projects),
                Span.user_id == user_id if reach.own else false(),
            )
        )
    return (await db.execute(query)).all()
