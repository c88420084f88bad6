"""Rules of sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.resources.projects import beside
from api.resources.projects import service as projects
from api.resources.sessions import access, changes, leases, repository
from api.resources.sessions.changes import Change, Read, Versioned
from api.resources.sessions.schemas import MAX_SECONDS
from api.settings import Settings
from api.tables.projects import Access, Project
from api.tables.sessions import ENDED, Kind, Session, State
from api.tables.users import User
from common import request_id
from common.errors import ConflictError, ForbiddenError, InputError, NotFoundError
from common.sentence import Sentence, Several

log = structlog.get_logger()

TRIES = 5
"""How often a change is tried while others change the session, too."""
PRIORITY = {Kind.TRAINING: 50, Kind.INTERACTIVE: 75, Kind.SERVICE: 75}
"""The usual priority of each kind; whoever manages the project may give more."""

DELETED = Sentence("deleted")
RESTARTED = (State.SCHEDULED, State.PREPARING, State.RUNNING)
"""States in which a session has something to end before it starts again."""
NAMED = 20
"""How many sessions an error names at most."""

used_by_project = repository.used_by_project
in_states = repository.in_states
by_ids = repository.by_ids
whole = repository.whole
unlinked = repository.unlinked
LogPart = repository.LogPart
log_tail = repository.log_tail
keep_logs = repository.keep_logs


async def get(db: AsyncSession, project: str, name: str, caller: Identity) -> Session:
    """Return the session of an id, or of a name: the live one, else the newest of the ended; raises NotFoundError.

    Of those that have ended, what lists still show goes before what was taken off them.
    """
    seen = await projects.get(db, project, caller)
    id_ = _as_id(name)
    session = await (repository.by_id(db, seen.id, id_) if id_ else repository.by_name(db, seen.id, name))
    if session is None or not access.sees(caller, session, seen):
        raise NotFoundError(
            Sentence("{project} has no session {name}", project=project, name=name),
            where="name",
            hint=Sentence("list the sessions"),
        )
    return session


async def get_for(db: AsyncSession, project: str, name: str, caller: Identity, action: Action) -> Session:
    """Return a session that the caller may do something to; raises ForbiddenError for one of another user."""
    session = await get(db, project, name, caller)
    if not access.may(caller, action, session, session.project):
        raise ForbiddenError(
            Sentence("session {name} belongs to {user}", name=session.name, user=session.user_name),
            hint=Sentence("ask {user}", user=session.user_name),
        )
    return session


async def delete(db: AsyncSession, project: str, name: str, caller: Identity) -> UUID:
    """Wish that a session ends and no list shows it; its GPUs are free when its containers are gone.

    The wish may be repeated: what is on its way there, or has come there, stays as it is.
    """
    session = await get_for(db, project, name, caller, Action.SESSION_END)
    for _ in range(TRIES):
        if _is_deleted(session) or await _delete(db, session):
            return session.id
        await db.refresh(session)
    raise _busy(name)


async def restart(db: AsyncSession, project: str, name: str, caller: Identity, settings: Settings) -> UUID:
    """End the containers of a session, which then waits for new ones; the wish may be repeated.

    Raises ConflictError where it has no containers to end, or where its project might not start it again.
    """
    session = await get_for(db, project, name, caller, Action.SESSION_RESTART)
    for _ in range(TRIES):
        if session.state is State.TERMINATING and session.final_state is State.PENDING:
            return session.id
        if session.state not in RESTARTED:
            hint = Sentence("submit it again") if session.state in ENDED else Sentence("restart one that runs")
            said = Sentence("session {name} is {state}", name=name, state=session.state.value)
            raise ConflictError(said, where="name", hint=hint)
        await _check_may_wait(db, session, settings)
        asked = {"request_id": request_id.current()}
        if await reclaim(db, session.id, session.revision, f"restarted by {caller.name}", **asked):
            log.info("audit", what="session restarted", session=name, project=project, by=caller.name)
            return session.id
        await db.refresh(session)
    raise _busy(name)


async def extend(db: AsyncSession, project: str, name: str, seconds: int, caller: Identity) -> UUID:
    """Put off the end of a session's time limit: owners as far as the project lets them, its managers as they like.

    Raises ConflictError where there is nothing to put off, or somebody who waits reckons with the end; ForbiddenError
    for more than an owner may add.
    """
    session = await get_for(db, project, name, caller, Action.SESSION_EXTEND)
    freely = caller.may(Action.SESSION_EXTEND, project=session.project)
    for _ in range(TRIES):
        if session.expires_at is None and session.state is State.RUNNING:
            hint = Sentence("neither it nor its project sets one, so there is nothing to put off")
            raise ConflictError(Sentence("session {name} has no time limit", name=name), where="name", hint=hint)
        if session.expires_at is None or session.state not in (State.PREPARING, State.RUNNING):
            raise ConflictError(
                Sentence("session {name} is {state} and no time limit runs", name=name, state=session.state.value),
                where="name",
                hint=Sentence("extend it as it runs"),
            )
        if not freely:
            _check_allowance(session, seconds)
        if reserved := await reserved_under(db, session, caller):
            raise ConflictError(
                Sentence("places are reserved on {nodes} for a session that waits", nodes=Several(reserved)),
                where="seconds",
                hint=Sentence("try again once that has started, or ask an administrator of the site"),
            )
        values = {"expires_at": _later(session.expires_at, seconds)}
        if await change(db, session, **values, extended_s=session.extended_s + (0 if freely else seconds)):
            return session.id
        await db.refresh(session)
    raise _busy(name)


def owner_adds_s(session: Session) -> int:
    """Return the seconds that a session's owner may still add to its time limit."""
    return max(0, session.project.interactive_extension_s - session.extended_s)


def extension_left_s(session: Session, caller: Identity) -> int:
    """Return the seconds that the caller may add to a session's time limit: an owner alone, or who may as they like."""
    return MAX_SECONDS if caller.may(Action.SESSION_EXTEND, project=session.project) else owner_adds_s(session)


async def reserved_under(db: AsyncSession, session: Session, caller: Identity) -> list[str]:
    """Return the nodes of a session on which places are reserved for others; administrators of the site pass over that.

    Who could put off its end while others wait for it would start before them by a short limit, and stay.
    """
    if caller.reach(Action.SESSION_EXTEND).everything:
        return []
    return await repository.reserved_among(db, [node.name for node in session.nodes])


async def give_priority(db: AsyncSession, project: str, name: str, priority: int, caller: Identity) -> UUID:
    """Change the priority of a session that waits; raises ConflictError for one that does not."""
    session = await get_for(db, project, name, caller, Action.SESSION_CHANGE)
    check_priority(priority, session.kind, caller, session.project)
    for _ in range(TRIES):
        if session.state is not State.PENDING:
            raise ConflictError(
                Sentence("session {name} is {state}: its turn has come", name=name, state=session.state),
                where="name",
                hint=Sentence("change one that waits"),
            )
        if await change(db, session, priority=priority):
            return session.id
        await db.refresh(session)
    raise _busy(name)


async def show_to(db: AsyncSession, project: str, name: str, wanted: Access, caller: Identity) -> UUID:
    """Change who sees a session, whatever has become of it; who sees it no more loses at once what is open."""
    session = await get_for(db, project, name, caller, Action.SESSION_SHOW)
    for _ in range(TRIES):
        if await change(db, session, access=wanted):
            log.info("audit", what="session access", session=name, project=project, access=wanted.value, by=caller.name)
            return session.id
        await db.refresh(session)
    raise _busy(name)


def check_priority(wanted: int, kind: Kind, caller: Identity, project: Project) -> None:
    """Raise ForbiddenError where the caller may not give sessions of a kind so much."""
    usual = PRIORITY[kind]
    if wanted > usual and not caller.may(Action.SESSION_RAISE, project=project):
        raise ForbiddenError(
            f"only a manager of {project.name} gives {kind} sessions a priority above {usual}",
            where="priority",
            hint=f"choose at most {usual}",
        )


async def change(db: AsyncSession, session: Versioned, **values: Any) -> bool:
    """Change a session unless somebody else has done so since it was read; returns whether it was changed."""
    return bool(await changes.write(db, [Change(session, changes.completed(values))]))


async def reclaim(db: AsyncSession, session_id: UUID, revision: int, reason: str, **more: Any) -> bool:
    """Stop a session that holds places so that it waits again; returns False where it has changed since it was read."""
    values = {"state": State.TERMINATING, "final_state": State.PENDING, "reason": reason}
    return await change(db, Read(session_id, revision), **values, **more)


def ending(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a session that comes to its end: its places stay on record."""
    return {"finished_at": now(), "resize_milli": None, "before_milli": None, **values}


async def end(db: AsyncSession, session: Session, **values: Any) -> bool:
    """Bring a session to its end; its places stay on record, its addresses are free again."""
    return await change(db, session, **ending(values))


async def requeue(db: AsyncSession, session: Session, reason: str) -> bool:
    """Put a session whose containers are gone, or given up, back into the queue; its next containers are new ones.

    They get the share that was last asked for.
    """
    values = {"state": State.PENDING, "final_state": None, "attempt": session.attempt + 1, "reason": reason}
    kept = {"interrupted": reason, "interrupted_at": now(), "exit_code": None}
    times = {"scheduled_at": None, "started_at": None, "expires_at": None, "warned_at": None, "extended_s": 0}
    wanted = session.gpu_milli if session.resize_milli is None else session.resize_milli
    shares: dict[str, Any] = {"gpu_milli": wanted, "held_milli": 0, "network": None}
    shares |= {"resize_milli": None, "before_milli": None, "reserved_on": []}
    if session.max_replicas:
        shares |= {"replicas": session.min_replicas, "replicas_at": None, "reach": {}}
    if not await change(db, session, **values, **kept, **times, **shares):
        return False
    await repository.remove_containers(db, session.id)
    return True


async def refuse_while_live(db: AsyncSession, *, project: str | None = None, user: str | None = None) -> None:
    """Raise ConflictError while a project or a user has sessions that have not ended."""
    count = await repository.count_live(db, project=project, user=user)
    if count:
        raise ConflictError(
            Sentence.counted(
                "{name} has {count} live session", "{name} has {count} live sessions", count, name=project or user
            ),
            where="name",
            hint=Sentence("delete the sessions first"),
        )


async def refuse_while_mounted(db: AsyncSession, volume_id: UUID, name: str, caller: Identity) -> None:
    """Raise ConflictError while sessions that have not ended mount a volume; those that the caller sees are named."""
    found = await repository.live_with_volume(db, volume_id)
    seen = [session.name for session in found if access.sees(caller, session, session.project)]
    if found:
        told = Sentence.counted(
            "volume {name} is in use by {count} live session",
            "volume {name} is in use by {count} live sessions",
            len(found),
            name=name,
        )
        raise ConflictError(
            Sentence("{text}: {why}", text=told, why=Several(seen[:NAMED])) if seen else told,
            where="name",
            hint=Sentence("delete the sessions first"),
        )


async def refuse_while_abroad(db: AsyncSession, user: User) -> None:
    """Raise ConflictError while a user has live sessions in projects of another domain than the user's own."""
    found = await repository.projects_in_other_domains(db, user)
    if found:
        raise ConflictError(
            Sentence(
                "{name} has live sessions in projects that another domain has: {projects}",
                name=user.name,
                projects=Several(found),
            ),
            where="domain",
            hint=Sentence("delete the sessions first, then move the user"),
        )


async def of_nodes(db: AsyncSession, node_ids: Collection[UUID], states: Collection[State]) -> Sequence[Session]:
    """Return the sessions of nodes in any of some states."""
    return await in_states(db, states, node_ids)


def _is_deleted(session: Session) -> bool:
    final_state = session.final_state if session.state is State.TERMINATING else session.state
    return final_state is State.TERMINATED


async def _delete(db: AsyncSession, session: Session) -> bool:
    if session.state is State.FAILED:
        return await change(db, session, state=State.TERMINATED)
    if session.state is State.PENDING:
        reason = DELETED if session.attempt else Sentence("deleted before it ran")
        return await end(db, session, state=State.TERMINATED, reason=reason, cause="", position=0)
    if session.state is State.TERMINATING and session.final_state is State.FAILED:
        return await change(db, session, final_state=State.TERMINATED)  # why it failed stays its reason
    values = {"state": State.TERMINATING, "final_state": State.TERMINATED, "reason": DELETED}
    return await change(db, session, **values)


async def _check_may_wait(db: AsyncSession, session: Session, settings: Settings) -> None:
    """Refuse to put a session into the queue that it would not leave again; raises ConflictError."""
    projects.check_active(session.project, now())
    try:
        await projects.check_cap(db, session.project, session.total_milli, preemptible=session.preemptible)
        cpu_milli = session.replicas * leases.counted_cpu_milli(session.cpu_milli, settings)
        memory_mib = session.replicas * session.memory_mib
        beside.check_caps(session.project, cpu_milli, memory_mib, preemptible=session.preemptible)
    except InputError as error:
        raise ConflictError(error.problems[0].reason, where="name", hint=Sentence("ask for a larger quota")) from error


def _as_id(text: str) -> UUID | None:
    """Return an id that stands in place of a name; no name is as long as one."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _check_allowance(session: Session, seconds: int) -> None:
    allowed, left = session.project.interactive_extension_s, owner_adds_s(session)
    if seconds > left:
        raise ForbiddenError(
            Sentence(
                "owners add at most {allowed} s in {project}, and {extended_s} s are added already",
                allowed=allowed,
                project=session.project.name,
                extended_s=session.extended_s,
            ),
            where="seconds",
            hint=Sentence("add at most {left} s", left=left) if left else Sentence("ask a manager of the project"),
        )


def _later(moment: datetime, seconds: int) -> datetime:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        raise InputError(Sentence("that is beyond the calendar"), where="seconds", hint=Sentence("add less")) from None


def _busy(name: str) -> ConflictError:
    return ConflictError(
        Sentence("session {name} changes all the time", name=name), where="name", hint=Sentence("try again")
    )
