"""Memberships of a user who is moved to another domain."""

from __future__ import annotations

import structlog
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.projects import Membership, Project
from api.tables.users import User

log = structlog.get_logger()


async def leave_other_domains(db: AsyncSession, user: User) -> None:
    """Take a user who has been moved out of the projects of other domains; those of the site stay open."""
    query = select(Project.id, Project.name).join(Membership, Membership.project_id == Project.id)
    query = query.where(Membership.user_id == user.id, Project.domain.is_distinct_from(user.domain))
    left = (await db.execute(query.where(Project.domain.is_not(None)).order_by(Project.name))).all()
    if left:
        ids = [row.id for row in left]
        await db.execute(delete(Membership).where(Membership.user_id == user.id, Membership.project_id.in_(ids)))
        log.info("audit", what="projects left", user=user.name, projects=",".join(row.name for row in left))
