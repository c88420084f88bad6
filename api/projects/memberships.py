"""Which projects a user belongs to; apart from the service, for who calls is asked before anything else is."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.projects.models import Membership, Part


async def of_user(db: AsyncSession, user_id: UUID) -> tuple[frozenset[UUID], frozenset[UUID]]:
    """Return the ids of the projects that a user manages, and of all that the user belongs to."""
    query = select(Membership.project_id, Membership.part).where(Membership.user_id == user_id)
    parts = (await db.execute(query)).all()
    return frozenset(id_ for id_, part in parts if part is Part.MANAGER), frozenset(id_ for id_, _ in parts)
