"""Rules of sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Identity
from api.database import now
from api.images import service as images
from api.nodes import service as nodes
from api.nodes.models import Node
from api.projects import service as projects
from api.sessions import repository
from api.sessions.models import ENDED, Container, Kind, Session, State
from api.sessions.schemas import SessionRequest
from api.settings import Settings
from appliance.gpu.share import MILLI, check_share, format_gpus
from reservoir.errors import ConflictError, ForbiddenError, InputError, NotFoundError

DELETE_TRIES = 5

used_by_project = repository.used_by_project
used_by_gpu = repository.used_by_gpu
in_states = repository.in_states
by_ids = repository.by_ids
log_tail = repository.log_tail
keep_log = repository.keep_log


class Versioned(Protocol):
    """A session, as far as changing it goes: which one, and the revision of it that was read."""

    @property
    def id(self) -> UUID:
        """Its id."""

    @property
    def revision(self) -> int:
        """Its lock token."""


async def submit(db: AsyncSession, request: SessionRequest, caller: Identity, settings: Settings) -> Session:
    """Put a session into the queue; raises InputError for what could never run, ConflictError for a name in use."""
    project = await projects.get(db, request.project, caller)
    projects.check_active(project, now())
    check_share(request.gpu_milli, settings.split)
    await _check_size(db, request.gpu_milli)
    image = await images.resolve(db, request.image, project.id)
    known = await repository.by_name(db, project.id, request.name)
    if known and known.state not in ENDED:
        raise ConflictError(
            f"{project.name} has a session {request.name} already, and it is {known.state}",
            where="name",
            cure="choose another name, or delete that session",
        )
    session = Session(
        name=request.name,
        project=project,
        user_id=caller.id,
        user_name=caller.name,
        image=image.title,
        reference=image.reference,
        kind=Kind.INTERACTIVE if request.interactive else Kind.TRAINING,
        preemptible=not request.interactive,
        gpu_milli=request.gpu_milli,
        command=request.command,
        args=request.args,
        environment=request.environment,
        mounts=_mounts(request, settings),
        reason="waits for the scheduler",
        containers=[],
        services=[],
    )
    repository.add(db, session)
    await db.flush()
    return session


async def visible(db: AsyncSession, caller: Identity, project: str | None, *, terminated: bool) -> Sequence[Session]:
    """Return the sessions of one project or of all that the caller may see; terminated ones only when asked for."""
    seen = [await projects.get(db, project, caller)] if project else await projects.visible(db, caller)
    return await repository.listed(db, [item.id for item in seen], terminated=terminated)


async def get(db: AsyncSession, project: str, name: str, caller: Identity) -> Session:
    """Return the live session of a name, else the newest that has ended; raises NotFoundError."""
    seen = await projects.get(db, project, caller)
    session = await repository.by_name(db, seen.id, name)
    if session is None:
        raise NotFoundError(f"{project} has no session {name}", where="name", cure="list the sessions")
    return session


async def get_own(db: AsyncSession, project: str, name: str, caller: Identity) -> Session:
    """Return a session that the caller may act on; raises ForbiddenError for one of another user."""
    session = await get(db, project, name, caller)
    if not caller.is_admin and session.user_id != caller.id:
        raise ForbiddenError(f"session {name} belongs to {session.user_name}", cure=f"ask {session.user_name}")
    return session


async def delete(db: AsyncSession, project: str, name: str, caller: Identity) -> Session:
    """End a session; its GPUs are free when its container is gone. An ended one is taken off the lists."""
    for _ in range(DELETE_TRIES):
        session = await get_own(db, project, name, caller)
        if session.state is State.TERMINATED:
            raise NotFoundError(f"{project} has no live session {name}", where="name", cure="list the sessions")
        if session.state is State.TERMINATING:
            return session
        if await change(db, session, **_on_delete(session)):
            await db.refresh(session)
            return session
        await db.refresh(session)
    raise ConflictError(f"session {name} changes all the time", where="name", cure="try again")


async def change(db: AsyncSession, session: Versioned, **values: Any) -> bool:
    """Change a session unless somebody else has done so since it was read; returns whether it was changed."""
    return await repository.update_guarded(db, session.id, session.revision, values)


async def schedule(db: AsyncSession, session: Versioned, containers: Sequence[Container]) -> bool:
    """Give a pending session its places."""
    changed = await change(db, session, state=State.SCHEDULED, scheduled_at=now(), reason="", cause="", position=0)
    if changed:
        for container in containers:
            repository.add(db, container)
    return changed


async def take_back(db: AsyncSession, session_id: UUID, revision: int, reason: str) -> bool:
    """Stop a session that holds places so that it waits again; returns False where it has changed since it was read."""
    values = {"state": State.TERMINATING, "ending": State.PENDING, "reason": reason}
    return await repository.update_guarded(db, session_id, revision, values)


async def note_containers(db: AsyncSession, session: Session, values: Mapping[int, dict[str, Any]]) -> None:
    """Write down what is known of a session's containers, by rank."""
    for rank, changes in values.items():
        if changes:
            await repository.update_container(db, session.id, rank, changes)


async def end(db: AsyncSession, session: Session, **values: Any) -> bool:
    """Bring a session to its end; its places stay on record, its addresses are free again."""
    if not await change(db, session, finished_at=now(), **values):
        return False
    await repository.remove_services(db, session.id)
    return True


async def requeue(db: AsyncSession, session: Session, reason: str) -> bool:
    """Put a session whose containers are gone, or given up, back into the queue; its next containers are new ones."""
    values = {"state": State.PENDING, "ending": None, "attempt": session.attempt + 1, "reason": reason}
    if not await change(db, session, **values, scheduled_at=None, started_at=None, exit_code=None):
        return False
    await repository.remove_containers(db, session.id)
    return True


async def refuse_while_live(db: AsyncSession, *, project: str | None = None, user: str | None = None) -> None:
    """Raise ConflictError while a project or a user has sessions that have not ended."""
    count = await repository.count_live(db, project=project, user=user)
    if count:
        noun = "session" if count == 1 else "sessions"
        raise ConflictError(
            f"{project or user} has {count} live {noun}", where="name", cure="delete the sessions first"
        )


async def of_nodes(db: AsyncSession, node_ids: Collection[UUID], states: Collection[State]) -> Sequence[Session]:
    """Return the sessions of nodes in any of some states."""
    return await in_states(db, states, node_ids)


async def note_lost_node(db: AsyncSession, node: Node, after_s: float) -> None:
    """Say on the sessions of a node that it is lost; they keep their states, for they may well go on."""
    for session in await of_nodes(db, [node.id], (State.SCHEDULED, State.PREPARING, State.RUNNING)):
        await change(db, session, reason=f"{node.name} is lost: nothing heard from it for {after_s:g} s")


async def _check_size(db: AsyncSession, milli: int) -> None:
    """Refuse what no node could hold even if it were empty."""
    sizes = [len(node.gpus) * MILLI for node in await nodes.every(db)]
    largest = max(sizes, default=0)
    if sizes and milli > largest:
        raise InputError(
            f"no node can ever hold {format_gpus(milli)} GPUs",
            where="gpu_milli",
            cure=f"ask for at most {format_gpus(largest)} GPUs, the size of the largest node"
            if largest
            else "ask an administrator to add a node with GPUs",
        )


def _mounts(request: SessionRequest, settings: Settings) -> list[dict[str, Any]]:
    if request.volumes and settings.volume_root is None:
        raise InputError(
            "this site has no shared storage for sessions", where="volumes", cure="submit the session without volumes"
        )
    return [
        {"source": f"{settings.volume_root}/{request.project}/{volume.name}", "target": volume.target}
        for volume in request.volumes
    ]


def _on_delete(session: Session) -> dict[str, Any]:
    if session.state is State.FAILED:
        return {"state": State.TERMINATED}
    if not session.containers:
        return {"state": State.TERMINATED, "reason": "deleted before it ran", "finished_at": now()}
    return {"state": State.TERMINATING, "ending": State.TERMINATED, "reason": "deleted"}
