"""Queries of projects."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.projects.models import Project, memberships


async def by_name(db: AsyncSession, name: str) -> Project | None:
    """Return the project of that name."""
    return (await db.scalars(select(Project).where(Project.name == name))).one_or_none()


async def every(db: AsyncSession, member: UUID | None = None) -> Sequence[Project]:
    """Return all projects by name, or only those of one member."""
    query = select(Project).order_by(Project.name)
    if member is not None:
        query = query.join(memberships).where(memberships.c.user_id == member)
    return (await db.scalars(query)).all()


def add(db: AsyncSession, project: Project) -> None:
    """Add a project to the transaction."""
    db.add(project)


async def delete(db: AsyncSession, project: Project) -> None:
    """Delete a project with the record of its ended sessions."""
    await db.delete(project)
