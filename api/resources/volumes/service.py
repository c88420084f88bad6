"""Rules of volumes: whose they are, what they are called, and what becomes of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID, uuid4

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.database import VOLUMES_LOCK, exclusively
from api.resources.projects import service as projects
from api.resources.volumes import repository
from api.resources.volumes.schemas import AfterProject, HandOver, NewVolume
from api.settings import Settings
from api.tables.projects import Project
from api.tables.volumes import SessionVolume, Volume, VolumeState
from common.errors import ConflictError, InputError, NotFoundError
from common.sentence import Sentence

log = structlog.get_logger()

MAX_VOLUMES = 1000
"""Most volumes of a project."""
SHOWN = 20
"""How many volumes an error names at most."""

live_sessions = repository.live_sessions
deleting = repository.deleting
is_deleting = repository.is_deleting
one_deleting = repository.one_deleting
delete_row = repository.delete


async def visible(db: AsyncSession, caller: Identity, project: str | None) -> Sequence[Volume]:
    """Return the volumes that the caller may see, of one project or of all; raises NotFoundError for the project."""
    project_id = None if project is None else (await projects.get(db, project, caller)).id
    return await repository.within(db, caller.reach(Action.VOLUME_READ), project_id)


async def get(
    db: AsyncSession, name: str, project: str | None, caller: Identity, storage: str, *, lock: bool = False
) -> Volume:
    """Return the volume of an id, or of a name and a project; raises NotFoundError where the caller sees none.

    `lock` keeps new sessions from mounting it until the transaction ends.
    """
    id_ = _as_id(name)
    if id_ is not None:
        volume = await repository.by_id(db, id_, lock=lock)
    elif project is not None:
        owner = await projects.get(db, project, caller)
        volume = await repository.by_name(db, owner.id, storage, name, lock=lock)
    else:
        raise InputError("a name is that of a project's volume", where="project", hint="name the project, or the id")
    if volume is None or not may(caller, Action.VOLUME_READ, volume) or project not in (None, _project_of(volume)):
        raise NotFoundError(
            Sentence("there is no volume {name} of {project}", name=name, project=project)
            if project
            else Sentence("there is no volume {name}", name=name),
            where="name",
            hint=Sentence("list the volumes"),
        )
    return volume


def may(caller: Identity, action: Action, volume: Volume) -> bool:
    """Return whether the caller may do something with a volume."""
    return caller.may(action, project=volume.project, domain=volume.domain)


def check(caller: Identity, action: Action, volume: Volume) -> None:
    """Raise ForbiddenError unless the caller may do something with a volume."""
    caller.check(action, project=volume.project, domain=volume.domain)


async def create(db: AsyncSession, request: NewVolume, caller: Identity, settings: Settings) -> Volume:
    """Create a volume; its folder is made when a session first mounts it. Raises ConflictError for a name in use."""
    project = await projects.get(db, request.project, caller)
    caller.check(Action.VOLUME_CREATE, project=project)
    check_storage(settings, "project")
    await exclusively(db, VOLUMES_LOCK)
    if await repository.by_name(db, project.id, settings.pvc_storage, request.name):
        raise ConflictError(
            Sentence("{project} has a volume {name} already", project=project.name, name=request.name),
            where="name",
            hint=Sentence("choose another name"),
        )
    return await _make(db, project, request.name, settings.pvc_storage, caller.name)


async def for_session(
    db: AsyncSession, project: Project, names: Iterable[str], user: str, settings: Settings
) -> dict[str, Volume]:
    """Return the volumes that a session names, by name; one that the project does not have yet is made."""
    found: dict[str, Volume] = {}
    for name in sorted(set(names)):
        volume = await repository.by_name(db, project.id, settings.pvc_storage, name)
        if volume is None:
            await exclusively(db, VOLUMES_LOCK)
            volume = await repository.by_name(db, project.id, settings.pvc_storage, name)
        found[name] = volume or await _make(db, project, name, settings.pvc_storage, user)
    return found


async def mount(db: AsyncSession, project: Project, volumes: Collection[Volume], sessions: Iterable[UUID]) -> None:
    """Note that sessions mount volumes; raises ConflictError where one was deleted or handed over meanwhile."""
    if not volumes:
        return
    ids = [volume.id for volume in volumes]
    if await repository.ready(db, project.id, ids) < len(ids):
        raise ConflictError(
            Sentence("a volume of {project} was deleted or handed over meanwhile", project=project.name),
            where="pvcs",
            hint=Sentence("submit it again"),
        )
    rows = [SessionVolume(session_id=session_id, volume_id=id_) for session_id in sessions for id_ in ids]
    repository.add(db, *rows)
    await db.flush()


async def hold(db: AsyncSession) -> None:
    """Let nobody else give volumes names until the transaction ends.

    Whoever hands volumes over begins with it: those who make one have it before the project, too.
    """
    await exclusively(db, VOLUMES_LOCK)


async def delete(db: AsyncSession, volume: Volume, caller: Identity) -> None:
    """Let a locked volume that no session mounts go away with its files, which an agent deletes."""
    _set_deleting(volume)
    _log("volume deleted", volume, caller)
    await db.flush()


async def hand_over(db: AsyncSession, volume: Volume, request: HandOver, caller: Identity) -> None:
    """Give a locked volume that no session mounts to another project, after `hold`.

    Raises ConflictError for a name in use there.
    """
    if volume.state is VolumeState.DELETING:
        raise ConflictError(
            Sentence("volume {name} is being deleted", name=volume.name),
            where="name",
            hint=Sentence("its files are going"),
        )
    target = await projects.get(db, request.project, caller)
    caller.check(Action.VOLUME_HAND_OVER, project=target, where="project")
    await _hand_over(db, [(volume, request.name or volume.name)], target, caller)


async def settle(
    db: AsyncSession, project: Project, wish: AfterProject | None, to: str | None, caller: Identity
) -> None:
    """Do with the volumes of a project that is deleted, and has no live session, what the administrator wishes.

    They are handed over after `hold`. Raises ConflictError that names them where there is no wish.
    """
    if (to is not None) != (wish is AfterProject.HAND_OVER):
        raise InputError(
            "`to` names the project that gets the volumes", where="to", hint="write it with volumes=hand-over, or not"
        )
    volumes = await repository.of_project(db, project.id, lock=True)
    if volumes and wish is None:
        names = ", ".join(volume.name for volume in volumes[:SHOWN])
        more = f" and {len(volumes) - SHOWN} more" if len(volumes) > SHOWN else ""
        raise ConflictError(
            f"{project.name} has volumes: {names}{more}",
            where="volumes",
            hint="say whether to keep or delete them, or to hand them over to another project",
        )
    if wish is AfterProject.HAND_OVER and to is not None:
        target = await projects.get(db, to, caller, "to")
        caller.check(Action.VOLUME_HAND_OVER, project=target, where="to")
        if target.id == project.id:
            raise InputError(f"{to} is the project that is deleted", where="to", hint="name another one")
        await _hand_over(db, [(volume, volume.name) for volume in volumes], target, caller, "to")
    for volume in volumes if wish in (AfterProject.KEEP, AfterProject.DELETE) else ():
        if wish is AfterProject.KEEP:
            volume.state = VolumeState.RETAINED
            _log("volume kept", volume, caller)
        else:
            _set_deleting(volume)
            _log("volume deleted", volume, caller)
        volume.former_project, volume.project = project.name, None
    await db.flush()


def check_storage(settings: Settings, field: str) -> None:
    """Raise InputError where the site has no storage for volumes."""
    if settings.pvc_root is None:
        raise InputError(
            Sentence("this site has no shared storage for sessions"),
            where=field,
            hint=Sentence("submit sessions without PVCs"),
        )


async def _make(db: AsyncSession, project: Project, name: str, storage: str, user: str) -> Volume:
    """Make a volume. What may be there from before volumes had rows has the folder that it had then."""
    if len(await repository.of_project(db, project.id)) >= MAX_VOLUMES:
        raise ConflictError(
            f"{project.name} has {MAX_VOLUMES} volumes already", where="name", hint="delete some of them"
        )
    id_ = uuid4()
    named = f"{project.name}/{name}"
    taken = not project.named_folders or await repository.has_folder(db, storage, named)
    volume = Volume(id=id_, name=name, project=project, domain=project.domain, storage=storage)
    volume.folder, volume.created_by = str(id_) if taken else named, user
    repository.add(db, volume)
    await db.flush()
    return volume


async def _hand_over(
    db: AsyncSession, wanted: Sequence[tuple[Volume, str]], target: Project, caller: Identity, where: str = "name"
) -> None:
    there = {(volume.storage, volume.name) for volume in await repository.of_project(db, target.id)}
    taken = sorted(name for volume, name in wanted if (volume.storage, name) in there)
    if taken:
        raise ConflictError(
            f"{target.name} has a volume {taken[0]} already",
            where=where,
            hint="hand it over by another name" if len(wanted) == 1 else "hand that one over by itself first",
        )
    for volume, name in wanted:
        volume.name, volume.project, volume.domain = name, target, target.domain
        volume.state, volume.former_project = VolumeState.READY, ""
        _log("volume handed over", volume, caller)
    await db.flush()


def _set_deleting(volume: Volume) -> None:
    if volume.project is not None:
        volume.former_project = volume.project.name
    volume.state, volume.reason = VolumeState.DELETING, ""


def _project_of(volume: Volume) -> str | None:
    return volume.project.name if volume.project else None


def _log(what: str, volume: Volume, caller: Identity) -> None:
    project = _project_of(volume) or volume.former_project
    log.info("audit", what=what, volume=volume.name, id=str(volume.id), project=project, by=caller.name)


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
