"""Queries of images."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Select, or_, select, true, update
from sqlalchemy import delete as deletion
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import raiseload

from api.database import among_told
from api.tables.images import UNSETTLED, Image, Status, Visibility, image_projects

IS_UNSETTLED = Image.status.in_(UNSETTLED)


async def usable(db: AsyncSession, projects: Collection[UUID] | None, *, whose: bool = True) -> Sequence[Image]:
    """Return the global images and those of some projects (None: of all), by name, the newest first.

    With `whose` they name the projects that have them.
    """
    query = _usable(of_all=projects is None, whose=whose)
    return (await db.scalars(query, {} if projects is None else {"projects": list(projects)})).all()


@cache
def _usable(*, of_all: bool, whose: bool) -> Select[Image]:
    any_of = among_told(image_projects.c.project_id, "projects")
    own = Image.id.in_(select(image_projects.c.image_id).where(any_of))
    query = select(Image).where(true() if of_all else or_(Image.visibility == Visibility.GLOBAL, own))
    query = query if whose else query.options(raiseload(Image.projects))
    return query.order_by(Image.name, Image.created_at.desc(), Image.tag, Image.visibility)


async def global_one(db: AsyncSession, name: str, tag: str) -> Image | None:
    """Return the global image of that name and tag."""
    query = select(Image).where(Image.name == name, Image.tag == tag, Image.visibility == Visibility.GLOBAL)
    return (await db.scalars(query)).one_or_none()


async def of_projects(db: AsyncSession, projects: Collection[UUID], name: str, tag: str) -> Sequence[Image]:
    """Return the images of that name and tag that any of some projects have of their own."""
    query = select(Image).join(image_projects).where(image_projects.c.project_id.in_(projects))
    return (await db.scalars(query.where(Image.name == name, Image.tag == tag).order_by(Image.id))).unique().all()


async def unsettled(db: AsyncSession) -> Sequence[UUID]:
    """Return the ids of the images that may not be there: those that are being pulled first, then the oldest."""
    begun = Image.status != Status.PULLING
    query = select(Image.id).where(IS_UNSETTLED).order_by(begun, Image.created_at, Image.id)
    return (await db.scalars(query)).all()


async def by_id(db: AsyncSession, image_id: UUID) -> Image | None:
    """Return an image by its id."""
    return await db.get(Image, image_id)


async def note(db: AsyncSession, image: Image, values: dict[str, Any]) -> bool:
    """Write what was found of an image, unless it stands for something else since it was read."""
    query = update(Image).where(Image.id == image.id, Image.reference == image.reference, Image.status == image.status)
    changed = await db.scalars(query.values(**values).returning(Image.id))
    return changed.one_or_none() is not None


async def replace_in_errors(db: AsyncSession, containing: str, change: Callable[[str], str]) -> None:
    """Change the errors of images that contain some words."""
    query = select(Image).where(Image.error.contains(containing, autoescape=True)).options(raiseload(Image.projects))
    for image in await db.scalars(query.with_for_update(of=Image)):
        image.error = change(image.error)


async def move(db: AsyncSession, step: timedelta) -> None:
    """Move since when images are looked for, as the clock was set by so much."""
    query = update(Image).where(Image.status.in_(UNSETTLED)).values(since=Image.since + step)
    await db.execute(query, execution_options={"synchronize_session": False})


def add(db: AsyncSession, image: Image) -> None:
    """Add an image to the transaction."""
    db.add(image)


async def delete(db: AsyncSession, image: Image) -> None:
    """Delete an image; sessions that use it go on."""
    await db.delete(image)


async def delete_of_project(db: AsyncSession, project_id: UUID) -> None:
    """Delete the images that only one project may use."""
    own = select(image_projects.c.image_id).where(image_projects.c.project_id == project_id)
    shared = select(image_projects.c.image_id).where(image_projects.c.project_id != project_id)
    alone = Image.id.in_(own), Image.id.not_in(shared)
    await db.execute(deletion(Image).where(*alone), execution_options={"synchronize_session": False})
