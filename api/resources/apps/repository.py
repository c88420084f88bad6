"""Queries of apps."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.sessions import Service, Session


async def find(db: AsyncSession, path: str, bases: Collection[str]) -> Sequence[tuple[Service, Session]]:
    """Return the services that stand at a path, or at one of several prefixes of their own, with their sessions."""
    query = select(Service, Session).join(Session, Session.id == Service.session_id)
    found = await db.execute(query.where(or_(Service.path == path, Service.base_path.in_(bases))))
    return [(service, session) for service, session in found.unique().all()]
