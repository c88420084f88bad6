"""Queries of apps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload, lazyload

from api.database import among
from api.tables.sessions import Service, Session


async def find(db: AsyncSession, path: str, bases: Collection[str]) -> Sequence[tuple[Service, Session]]:
    """Return the services that stand at a path, or at one of several prefixes of their own, with their sessions."""
    query = select(Service, Session).join(Session, Session.id == Service.session_id)
    found = await db.execute(query.where(or_(Service.path == path, Service.base_path.in_(bases))))
    return [(service, session) for service, session in found.unique().all()]


async def of_ids(db: AsyncSession, ids: Collection[UUID]) -> Sequence[Session]:
    """Return sessions with their projects and nothing else."""
    query = select(Session).where(among(Session.id, ids)).options(lazyload("*"), joinedload(Session.project))
    return (await db.scalars(query)).all()
