"""Adoption: folders that a storage has and that no volume bears yet become volumes, in the places where they are.

Before volumes had rows, a folder was called `PROJECT/NAME`. It belongs to the project of that name, if that was there
then, and else is kept for an administrator to hand over: a project that was made anew by an old name gets nothing.

A folder that is called by an id is one of a volume that the database has forgotten, as after an older backup of it was
restored. It is kept for an administrator, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.database import VOLUMES_LOCK, exclusively
from api.resources.schemas import is_name
from api.resources.volumes import repository
from api.tables.volumes import SessionVolume, Volume, VolumeState
from common.storage_protocol import StorageState

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


async def take_stock(db: AsyncSession, storage: str, seen: StorageState) -> list[Volume]:
    """Note the sizes of a storage's folders, and adopt those that no volume has; returns the new volumes."""
    await exclusively(db, VOLUMES_LOCK)
    known = await repository.by_folder(db, storage)
    adopted = await _adopt(db, storage, [folder.folder for folder in seen.folders if folder.folder not in known])
    known |= {volume.folder: volume for volume in adopted}
    for folder in seen.folders:
        if (volume := known.get(folder.folder)) and folder.used_mib is not None:
            volume.used_mib, volume.limit_mib, volume.measured_at = folder.used_mib, folder.limit_mib, now()
    if seen.mounted:
        # what is no mount may be the empty place of one: there nothing is known of the folders that are missing
        await repository.looked_for_all(db)
    await db.flush()
    return adopted


async def link(db: AsyncSession, project_id: UUID, storage: str, session_id: UUID, folder: str) -> None:
    """Note that a session of before volumes had rows mounts a folder of its project, by its name."""
    await exclusively(db, VOLUMES_LOCK)
    volume = (await repository.by_folder(db, storage)).get(folder)
    if volume is None:
        project = await repository.project(db, project_id)
        volume = Volume(name=folder.partition("/")[2], project=project, domain=project.domain, storage=storage)
        volume.folder = folder
        repository.add(db, volume)
        await db.flush()
    repository.add(db, SessionVolume(session_id=session_id, volume_id=volume.id))
    await db.flush()


async def _adopt(db: AsyncSession, storage: str, folders: Collection[str]) -> list[Volume]:
    forgotten = [
        Volume(name=f"found-{folder[:8]}", storage=storage, folder=folder, state=VolumeState.RETAINED)
        for folder in folders
        if _ID.fullmatch(folder)
    ]
    repository.add(db, *forgotten)
    return forgotten + await _adopt_named(db, storage, folders)


async def _adopt_named(db: AsyncSession, storage: str, folders: Iterable[str]) -> list[Volume]:
    parts = {folder: folder.partition("/") for folder in folders}
    named = {path: (project, name) for path, (project, _, name) in parts.items() if is_name(project) and is_name(name)}
    owners = {project for project, _ in named.values()}
    there, gone = await repository.projects_by_name(db, owners), await repository.former_projects(db, owners)
    adopted = []
    for path, (owner, name) in named.items():
        project = there.get(owner)
        if project is None and owner not in gone:
            continue  # somebody else's folder beside ours
        volume = Volume(name=name, storage=storage, folder=path, former_project=owner, state=VolumeState.RETAINED)
        if project and project.named_folders:
            volume.domain = project.domain
            if await repository.by_name(db, project.id, storage, name) is None:
                volume.project, volume.former_project, volume.state = project, "", VolumeState.READY
        repository.add(db, volume)
        await db.flush()
        adopted.append(volume)
    return adopted
