"""What the database wants becomes what the machines do: containers are launched and terminated.

Each operation loads a session, calls the agent with no transaction open, and writes the outcome only if the session is
still as it was loaded. One session has at most one operation at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import structlog

from api.database import Database
from api.engine.base import Engine, UnreachableError
from api.reconcilers.observe import after
from api.sessions import service as sessions
from api.sessions.models import Container, Kind, Session, State
from api.sessions.relay import target_of
from appliance.agent.protocol import ContainerSpec, GpuGrant, Mount, Pull
from reservoir.errors import PenstockError

log = structlog.get_logger()

LAUNCH_TRIES = 5
GRACE_S = 5
LOG_TAIL_BYTES = 256 * 1024
LOG_TAIL_LINES = 20_000


class Operator:
    """Launches and terminates; remembers how often a launch was tried, and whether the agent may know of it."""

    def __init__(self, database: Database, engine: Engine) -> None:
        """Start with no tries."""
        self._database = database
        self._engine = engine
        self._tries: dict[UUID, int] = {}
        self._undelivered: set[UUID] = set()

    async def operate(self, session_id: UUID) -> State | None:
        """Do what a session needs now; returns the state in which it should be tried again later, if any."""
        session = await self._load(session_id)
        if session is not None and session.state is State.SCHEDULED:
            session = await self._prepare(session)
        if session is not None and session.state is State.PREPARING:
            return None if await self._launch(session) else State.PREPARING
        if session is not None and session.state is State.TERMINATING:
            return None if await self._terminate(session) else State.TERMINATING
        return None

    async def _prepare(self, session: Session) -> Session | None:
        """Say that the agent is about to be called: from here on a container may exist."""
        self._undelivered.add(session.id)
        if not await self._change(session, {}, state=State.PREPARING, reason="starts the container"):
            return None
        return await self._load(session.id)

    async def _launch(self, session: Session) -> bool:
        """Ask the agents for the containers; returns whether that is settled."""
        for container in session.containers:
            if container.status is not None:
                continue
            target = target_of(container.node)
            try:
                state = await self._engine.launch(target, spec_of(session, container))
            except UnreachableError as error:
                if error.delivered:
                    self._undelivered.discard(session.id)
                return await self._launch_later(session, error)
            except PenstockError as error:
                log.info("refused", session=session.name, node=target.name, reason=str(error))
                reason = f"{target.name} refused it: {error.problems[0].reason}"
                await self._give_up(session, reason, nothing_there=False)
                return True
            self._undelivered.discard(session.id)
            values, noted = after(session, {container.rank: state})
            if not await self._change(session, noted, **values):
                return False
            found = await self._load(session.id)
            if found is None or found.state is not State.PREPARING:
                return True
            session = found
        self._forget(session.id)
        return True

    async def _launch_later(self, session: Session, error: UnreachableError) -> bool:
        tries = self._tries[session.id] = self._tries.get(session.id, 0) + 1
        reason = error.problems[0].reason
        if tries >= LAUNCH_TRIES:
            await self._give_up(session, f"{reason} ({tries} tries)", nothing_there=session.id in self._undelivered)
            return True
        await self._change(session, {}, reason=f"{reason}; try {tries} of {LAUNCH_TRIES}")
        return False

    async def _give_up(self, session: Session, reason: str, *, nothing_there: bool) -> None:
        """Fail a session; where a container may exist, it is removed before the GPUs are free."""
        self._forget(session.id)
        if nothing_there:
            async with self._database.transaction() as db:
                await sessions.end(db, session, state=State.FAILED, reason=reason)
        else:
            await self._change(session, {}, state=State.TERMINATING, ending=State.FAILED, reason=reason)

    async def _terminate(self, session: Session) -> bool:
        """Keep the log, remove the containers, free the GPUs; returns whether that is settled."""
        try:
            tail = await self._log_tail(session)
            for container in session.containers:
                await self._engine.terminate(target_of(container.node), session.container_id(container.rank), GRACE_S)
        except PenstockError as error:
            reason = f"{error.problems[0].reason}; its GPUs are freed when its container is gone"
            if session.reason != reason and session.ending is State.TERMINATED:
                await self._change(session, {}, reason=reason)
            return False
        ending = session.ending or State.TERMINATED
        async with self._database.transaction() as db:
            if ending is State.PENDING:
                ended = await sessions.requeue(db, session, session.reason)
            else:
                ended = await sessions.end(db, session, state=ending, reason=_last_reason(session))
            if ended:
                await sessions.keep_log(db, session.id, tail)
        self._forget(session.id)
        log.info("ended", session=session.name, project=session.project.name, state=str(ending))
        return ended

    async def _log_tail(self, session: Session) -> bytes:
        tail = bytearray()
        first = session.containers[0]
        try:
            target, container_id = target_of(first.node), session.container_id(first.rank)
            async for chunk in self._engine.logs(target, container_id, follow=False, tail=LOG_TAIL_LINES):
                tail += chunk
                del tail[:-LOG_TAIL_BYTES]
        except UnreachableError:
            raise
        except PenstockError as error:
            # There is no container, or it never had a log: that is no reason to keep the session.
            log.info("no log", session=session.name, reason=str(error))
        return bytes(tail)

    async def _load(self, session_id: UUID) -> Session | None:
        async with self._database.reading() as db:
            return (await sessions.by_ids(db, [session_id])).get(session_id)

    async def _change(self, session: Session, noted: Mapping[int, dict[str, Any]], **values: Any) -> bool:
        """Write what is new of a session and its containers, unless somebody else was faster."""
        async with self._database.transaction() as db:
            if values and not await sessions.change(db, session, **values):
                return False
            await sessions.note_containers(db, session, noted)
            return True

    def _forget(self, session_id: UUID) -> None:
        self._tries.pop(session_id, None)
        self._undelivered.discard(session_id)


def spec_of(session: Session, container: Container) -> ContainerSpec:
    """Return one container that a session wants; always the same for the same attempt of the same session."""
    return ContainerSpec(
        id=session.container_id(container.rank),
        session_id=str(session.id),
        session_name=session.name,
        project=session.project.name,
        user=session.user_name,
        image=session.reference,
        command=session.command,
        args=session.args,
        environment={**session.environment, **_gang(session, container)},
        gpus=[GpuGrant(uuid=grant.uuid, index=grant.index, milli=grant.milli) for grant in container.grants],
        cpu_milli=session.cpu_milli,
        memory_mib=session.memory_mib,
        shm_mib=session.shm_mib,
        interactive=session.kind is Kind.INTERACTIVE,
        mounts=[Mount(**mount) for mount in session.mounts],
        ports=[service.port for service in session.services],
        pull=Pull.NEVER if session.local_image else Pull.MISSING,
    )


def _gang(session: Session, container: Container) -> dict[str, str]:
    """Return what the containers of one session need to know of each other."""
    if session.size == 1:
        return {}
    hosts = ",".join(item.node.address for item in session.containers)
    return {"PENSTOCK_RANK": str(container.rank), "PENSTOCK_SIZE": str(session.size), "PENSTOCK_HOSTS": hosts}


def _last_reason(session: Session) -> str:
    """Why it failed stays; how it came to an end that was asked for needs no words."""
    return session.reason if session.ending is State.FAILED or session.reason == "deleted" else ""
