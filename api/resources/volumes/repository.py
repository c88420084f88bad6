"""Queries of volumes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, false, func, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.auth.identity import Reach
from api.database import among
from api.tables.accounting import Span
from api.tables.projects import Access, Project
from api.tables.sessions import ENDED, Session
from api.tables.volumes import SessionVolume, Volume, VolumeState


async def within(db: AsyncSession, reach: Reach, project_id: UUID | None = None) -> Sequence[Volume]:
    """Return the volumes that somebody may reach, of one project or of all, by project and name."""
    everything = true() if reach.everything else false()
    domain = Volume.domain == reach.domain if reach.domain else false()
    query = select(Volume).where(or_(everything, domain, Volume.project_id.in_(reach.projects)))
    if project_id is not None:
        query = query.where(Volume.project_id == project_id)
    query = query.outerjoin(Project, Project.id == Volume.project_id)
    order = (Project.name.nulls_last(), Volume.former_project, Volume.name, Volume.created_at, Volume.id)
    return (await db.scalars(query.order_by(*order))).all()


async def by_id(db: AsyncSession, volume_id: UUID, *, lock: bool = False) -> Volume | None:
    """Return a volume; `lock` keeps new sessions from mounting it until the transaction ends."""
    return await db.scalar(_locked(select(Volume).where(Volume.id == volume_id), lock=lock))


async def by_name(db: AsyncSession, project_id: UUID, storage: str, name: str, *, lock: bool = False) -> Volume | None:
    """Return the volume that a project's sessions mean by a name."""
    query = select(Volume).where(Volume.project_id == project_id, Volume.storage == storage, Volume.name == name)
    return await db.scalar(_locked(query.where(Volume.state == VolumeState.READY), lock=lock))


async def of_project(db: AsyncSession, project_id: UUID, *, lock: bool = False) -> Sequence[Volume]:
    """Return the volumes that a project's sessions can mount, by name."""
    query = select(Volume).where(Volume.project_id == project_id, Volume.state == VolumeState.READY)
    return (await db.scalars(_locked(query.order_by(Volume.name, Volume.id), lock=lock))).all()


async def ready(db: AsyncSession, project_id: UUID, ids: Collection[UUID]) -> int:
    """Return how many of some volumes a project's sessions can mount; these stay so until the transaction ends."""
    query = select(Volume.id).where(among(Volume.id, ids), Volume.project_id == project_id)
    query = query.where(Volume.state == VolumeState.READY).with_for_update(read=True, of=Volume)
    return len((await db.scalars(query)).all())


async def has_folder(db: AsyncSession, storage: str, folder: str) -> bool:
    """Return whether a volume has a folder already."""
    query = select(Volume.id).where(Volume.storage == storage, Volume.folder == folder)
    return await db.scalar(query) is not None


async def by_folder(db: AsyncSession, storage: str) -> dict[str, Volume]:
    """Return the volumes of a storage by their folders."""
    return {volume.folder: volume for volume in await db.scalars(select(Volume).where(Volume.storage == storage))}


def is_deleting(storage: str) -> ColumnElement[bool]:
    """Return the condition that the files of a volume of a storage are to go."""
    return and_(Volume.storage == storage, Volume.state == VolumeState.DELETING)


async def deleting(db: AsyncSession, storage: str) -> Sequence[Volume]:
    """Return the volumes of a storage whose files are to go, in order."""
    query = select(Volume).where(is_deleting(storage))
    return (await db.scalars(query.order_by(Volume.id))).all()


async def live_sessions(db: AsyncSession, ids: Collection[UUID], user_id: UUID, private: Reach) -> dict[UUID, int]:
    """Return how many sessions that have not ended mount each of some volumes.

    Private ones count where they are a user's own, or within `private`.
    """
    domain = Project.domain == private.domain if private.domain else false()
    seen = (Session.access != Access.PRIVATE, Session.user_id == user_id, Session.project_id.in_(private.projects))
    query = select(SessionVolume.volume_id, func.count().label("live")).join(
        Session, Session.id == SessionVolume.session_id
    )
    query = query.join(Project, Project.id == Session.project_id)
    query = query.where(among(SessionVolume.volume_id, ids), Session.state.not_in(ENDED))
    if not private.everything:
        query = query.where(or_(*seen, domain))
    return {row.volume_id: row.live for row in await db.execute(query.group_by(SessionVolume.volume_id))}


async def former_projects(db: AsyncSession, names: Collection[str]) -> set[str]:
    """Return which of some names projects have had that accounting knows of."""
    query = select(Span.project_name).where(Span.project_name.in_(names)).distinct()
    return set(await db.scalars(query))


async def projects_by_name(db: AsyncSession, names: Collection[str]) -> dict[str, Project]:
    """Return the projects of some names that there are; they stay until the transaction ends."""
    query = select(Project).where(Project.name.in_(names)).with_for_update(read=True, key_share=True, of=Project)
    return {project.name: project for project in await db.scalars(query)}


async def project(db: AsyncSession, project_id: UUID) -> Project:
    """Return the project of an id; it is there as long as a session of it is."""
    return await db.get_one(Project, project_id)


async def one_deleting(db: AsyncSession, volume_id: UUID) -> Volume | None:
    """Return a volume whose files are to go, locked until the transaction ends."""
    query = select(Volume).where(Volume.id == volume_id, Volume.state == VolumeState.DELETING)
    return await db.scalar(_locked(query, lock=True))


async def looked_for_all(db: AsyncSession) -> None:
    """Write down that every folder that projects had by name has its row."""
    await db.execute(update(Project).where(Project.named_folders).values(named_folders=False))


def add(db: AsyncSession, *rows: Volume | SessionVolume) -> None:
    """Add rows to the transaction."""
    db.add_all(rows)


async def delete(db: AsyncSession, volume: Volume) -> None:
    """Delete a volume whose files are gone."""
    await db.delete(volume)


def _locked(query: Select[Volume], *, lock: bool) -> Select[Volume]:
    if not lock:
        return query
    # A project of the same statement would be the one from before somebody else let go of the row.
    query = query.options(selectinload(Volume.project))
    return query.with_for_update(of=Volume).execution_options(populate_existing=True)
