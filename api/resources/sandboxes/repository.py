"""Queries of sandboxes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from uuid import UUID

from sqlalchemy import Select, bindparam, exists, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import raiseload

from api.tables.sandboxes import Sandbox, sandbox_images, sandbox_projects


async def every(db: AsyncSession) -> Sequence[Sandbox]:
    """Return all sandboxes by name."""
    return (await db.scalars(select(Sandbox).order_by(Sandbox.name))).all()


async def by_name(db: AsyncSession, name: str) -> Sandbox | None:
    """Return the sandbox of that name."""
    return (await db.scalars(select(Sandbox).where(Sandbox.name == name))).one_or_none()


async def for_project(db: AsyncSession, project_id: UUID) -> tuple[bool, Sandbox | None]:
    """Return whether any image has a sandbox, and the sandbox of a project, else the site's."""
    row = (await db.execute(_for_project(), {"project_id": project_id})).one()
    return row[0], row[1]


@cache
def _for_project() -> Select[bool, Sandbox | None]:
    of_project = select(sandbox_projects.c.sandbox_id).where(sandbox_projects.c.project_id == bindparam("project_id"))
    by_project, one = Sandbox.id.in_(of_project), select(literal(1)).subquery()
    query = select(exists().select_from(sandbox_images), Sandbox)
    query = query.select_from(one).outerjoin(Sandbox, or_(by_project, Sandbox.site_wide))
    query = query.options(raiseload(Sandbox.projects), raiseload(Sandbox.images))
    return query.order_by(by_project.desc(), Sandbox.name).limit(1)


async def for_session(db: AsyncSession, project_id: UUID, images: Collection[UUID]) -> Sandbox | None:
    """Return the sandbox of any of some images, else that of a project, else the site's."""
    of_images = select(sandbox_images.c.sandbox_id).where(sandbox_images.c.image_id.in_(images))
    of_project = select(sandbox_projects.c.sandbox_id).where(sandbox_projects.c.project_id == project_id)
    by_image, by_project = Sandbox.id.in_(of_images), Sandbox.id.in_(of_project)
    query = select(Sandbox).where(or_(by_image, by_project, Sandbox.site_wide))
    return (await db.scalars(query.order_by(by_image.desc(), by_project.desc(), Sandbox.name).limit(1))).one_or_none()


def add(db: AsyncSession, sandbox: Sandbox) -> None:
    """Add a sandbox to the transaction."""
    db.add(sandbox)


async def delete(db: AsyncSession, sandbox: Sandbox) -> None:
    """Delete a sandbox."""
    await db.delete(sandbox)
