"""Operations: what the database wants becomes what the machines do; launch, termination, other shares.

Each operation loads a session, calls the agents with no transaction open, and writes the outcome only if the session is
still as it was loaded. One session has at most one operation at a time; its containers are called for at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

import structlog
from structlog.contextvars import bind_contextvars

from api.clock import now
from api.control.reconcilers import change, reach, refusals, resizes
from api.control.reconcilers.failures import OUTAGES, all_of, failed
from api.control.reconcilers.follow import LASTING, WITHDRAWN, Noted, after, withdrawn
from api.control.reconcilers.members import MemberChanges
from api.control.reconcilers.outcomes import Outcome, Outcomes
from api.control.reconcilers.timed import TimedReconciler
from api.database import Database
from api.engine.base import Engine, UnreachableError
from api.engine.launcher import Launcher, NotLentError
from api.resources.sessions import changes, networks
from api.resources.sessions import service as sessions
from api.resources.sessions.changes import Change
from api.resources.sessions.leases import lease_of, leased_nodes
from api.resources.sessions.relay import agent_of
from api.resources.sessions.spec import spec_of
from api.settings import Settings
from api.tables.nodes import NodeState
from api.tables.sessions import Container, Session, State
from common import request_id
from common.errors import ConflictError, InputError, PenstockError, UnavailableError
from common.gpu.share import MILLI
from common.messages import protocol_of
from common.protocol import ContainerState
from common.sentence import Sentence

log = structlog.get_logger()

AT_WORK = (State.SCHEDULED, State.PREPARING, State.TERMINATING)
FREED_LATER = "freed-later"
"""Why a session still ends: its containers cannot be removed yet."""
LOG_TRIES = 3
LOG_TAIL_LINES = 20_000


class Operator:
    """Launches and terminates; remembers which containers certainly never reached their agents."""

    def __init__(
        self,
        database: Database,
        engine: Engine,
        launcher: Launcher,
        settings: Settings,
        timed: TimedReconciler,
        *,
        launched: Callable[[str], None],
    ) -> None:
        """Start with nothing known: after a restart any container may exist. `launched` is told the node's name."""
        self._database = database
        self._engine = engine
        self._launcher = launcher
        self._settings = settings
        self._timed = timed
        self._launched = launched
        self._outcomes = Outcomes(database)
        self._members = MemberChanges(database, engine, self._outcomes, self._launch_one, settings.reclaim_grace_s)
        self._unsent: set[str] = set()

    async def load(self, ids: Collection[UUID]) -> dict[UUID, Session]:
        """Return sessions for operations; of those that start it is noted that their agents are about to be called.

        From then on a container may exist. One that somebody else has just changed is left out.
        """
        async with self._database.reading() as db:
            found = await sessions.whole(db, ids)
        begun = [session for session in found.values() if session.state is State.SCHEDULED]
        if begun:
            self._unsent |= {each.container_id(container.rank) for each in begun for container in each.containers}
            values = {"state": State.PREPARING, "reason": Sentence("starts the container")}
            wanted = [Change.of(session, values) for session in begun]
            async with self._database.transaction() as db:
                written = await changes.write(db, wanted)
            for preparation in wanted:
                if preparation.session.id in written:
                    preparation.take_over()
                else:
                    del found[preparation.session.id]
        return found

    async def operate(self, session: Session, tries: int = 0) -> State | None:
        """Do what a session needs now; returns the state in which it should be tried again later, if any.

        `tries` is how often that was found before, in the same state.
        """
        bind_contextvars(session=session.name, session_id=str(session.id))
        if session.state is State.PREPARING:
            request_id.resume(session.request_id)
            return None if await self._launch(session) else State.PREPARING
        if session.state is State.RUNNING and any(each.leaving or each.status is None for each in session.containers):
            return None if await self._members.change(session) else State.RUNNING
        if session.state is State.RUNNING:
            return None if await resizes.tell(self._database, self._engine, session) else State.RUNNING
        if session.state is State.TERMINATING:
            return None if await self._terminate(session, tries) else State.TERMINATING
        return None

    async def give_up(self, session_id: UUID, what: str) -> None:
        """End a session at which the API failed too often, or the change of its share."""
        async with self._database.transaction() as db:
            session = (await sessions.by_ids(db, [session_id])).get(session_id)
            at_work = session is not None and (session.state in AT_WORK or session.resize_milli is not None)
            if session is not None and at_work:
                await change.apply(db, failed(session, what))

    async def _launch(self, session: Session) -> bool:
        """Ask the agents for the containers that they have not confirmed; returns whether that is settled."""
        if not await self._admit(session):
            return False
        asked = [container for container in session.containers if container.status is None]
        answers = await all_of(self._launch_one(session, container) for container in asked)
        outcome = dict(zip((container.rank for container in asked), answers, strict=True))
        states = {rank: answer for rank, answer in outcome.items() if isinstance(answer, ContainerState)}
        errors = [answer for answer in answers if isinstance(answer, PenstockError)]
        values, noted = after(session, states, now())
        terminates = values.get("state") is State.TERMINATING
        refusals = [error for error in errors if not isinstance(error, UnreachableError | ConflictError)]
        if refusals and not terminates:
            values = {"state": State.TERMINATING, "final_state": State.FAILED, "reason": refusals[0].problems[0].reason}
        elif errors and not terminates:
            reason = Sentence("{why}; it is tried again", why=errors[0].problems[0].reason)
            values = {} if session.reason == reason else {"reason": reason}
        if not (values or noted):
            return not errors
        return await self._change(session, noted, **values) and (session.state is not State.PREPARING or not errors)

    async def _admit(self, session: Session) -> bool:
        """Ask for the lease of a session's places; returns whether it is lent. One that is not goes back to wait."""
        values: dict[str, Any]
        try:
            await self._launcher.admit(lease_of(session), leased_nodes(session))
        except NotLentError as error:
            values = refusals.refused(session, error.problems[0].reason, now())
        except UnavailableError as error:
            values = {"reason": Sentence("{why}; it is tried again", why=error.problems[0].reason)}
        else:
            return True
        if values.get("state") or values["reason"] != session.reason:
            await self._change(session, {}, **values)
        return False

    async def _launch_one(self, session: Session, container: Container) -> ContainerState | PenstockError:
        spec = spec_of(session, container, named_apps=bool(self._settings.apps_name))
        agent = agent_of(container.node)
        if self._launcher.is_watched:
            spec = spec.model_copy(update={"lease": str(lease_of(session))})
        if protocol_of(spec) > container.node.protocol:
            # its node went back to an earlier release since the session got its place
            return ConflictError(f"the agent of {agent.name} is of an earlier release, which does not know all of it")
        if _is_taken(container):
            return ConflictError(Sentence("{node} runs containers that hold its place", node=agent.name))
        try:
            state = await self._engine.launch(agent, spec)
        except UnreachableError as error:
            await reach.note(self._database, container.node, error)
            if error.delivered:
                self._unsent.discard(spec.id)
            return error
        except PenstockError as error:
            log.info("refused", session=session.name, node=agent.name, reason=str(error))
            self._unsent.discard(spec.id)
            return _refusal(agent.name, error)
        self._unsent.discard(spec.id)
        self._launched(agent.name)
        await reach.note(self._database, container.node, None)
        return state

    async def _terminate(self, session: Session, tries: int) -> bool:
        """Keep the logs, remove the containers, free the GPUs; returns whether that is settled."""
        present = [container for container in session.containers if not self._is_given_up(session, container)]
        try:
            logs = await self._log_tails(session, present, tries)
            await self._remove(session, present)
            reason = await self._release(session)
        except PenstockError as error:
            why = error.problems[0].reason
            reason = Sentence("{why}; its GPUs are freed when its container is gone", why=why)
            is_deleted = session.final_state is State.TERMINATED and session.cause in ("", FREED_LATER)
            if is_deleted and session.reason != reason:
                await self._change(session, {}, reason=reason, cause=FREED_LATER)
            return False
        final_state = session.final_state or State.TERMINATED
        network, left = session.network, self._left(session, present)
        if final_state is State.PENDING:
            async with self._database.transaction() as db:
                ended = await sessions.requeue(db, session, reason)
                if ended:
                    await sessions.keep_logs(db, logs)
                if ended and network is not None:
                    await networks.leave(db, network, left)
        else:
            cause = session.cause if session.cause in LASTING else ""
            values = sessions.ending({"state": final_state, "reason": _last_reason(session, reason), "cause": cause})
            ended = await self._outcomes.write(Outcome(Change.of(session, values), logs, network, left))
        if ended:
            self._unsent -= {session.container_id(container.rank) for container in session.containers}
            log.info("ended", session=session.name, project=session.project.name, state=str(final_state))
        return ended

    async def _release(self, session: Session) -> str:
        """Give the lease of a session back; returns why it has ended, as who took its place back has come to say."""
        ended = await self._launcher.release([lease_of(session)])
        why = ended.get(lease_of(session)) if session.cause == WITHDRAWN else None
        return withdrawn(why, again=session.final_state is State.PENDING) if why else session.why

    async def _remove(self, session: Session, present: Sequence[Container]) -> None:
        """Remove containers at once; raises what hindered one of them when all have been tried."""
        grace_s = (
            self._settings.reclaim_grace_s if session.final_state is State.PENDING else self._settings.stop_grace_s
        )
        calls = (
            self._engine.terminate(agent_of(container.node), session.container_id(container.rank), grace_s)
            for container in present
        )
        outcome = await asyncio.gather(*calls, return_exceptions=True)
        for container, error in zip(present, outcome, strict=True):
            await reach.note(self._database, container.node, error)
        if errors := [error for error in outcome if error is not None]:
            raise errors[0]

    def _left(self, session: Session, present: Collection[Container]) -> set[UUID]:
        """Return the nodes on which no container of a session is any more, of which `present` have been removed."""
        given_up = [container for container in session.containers if container not in present]
        unknown = {item.node_id for item in given_up if session.container_id(item.rank) not in self._unsent}
        return {container.node_id for container in session.containers} - unknown

    def _is_given_up(self, session: Session, container: Container) -> bool:
        """Return whether a container needs no call: it never came to be, or its node is lost for good."""
        node = container.node
        if container.status is None and session.container_id(container.rank) in self._unsent:
            return True
        if node.state is not NodeState.LOST:
            return False
        return session.final_state is State.PENDING or node.id in self._timed.gone

    async def _log_tails(self, session: Session, present: Sequence[Container], tries: int) -> list[sessions.LogPart]:
        """Return the ends of the logs; one that cannot be read does not keep the session for ever."""
        logs = []
        for container in present:
            try:
                tail = await self._container_log(session, container)
            except UnreachableError:
                if tries < LOG_TRIES:
                    raise
            else:
                logs += [sessions.LogPart(session.id, container.rank, tail, session.log_bytes)] if tail else []
        return logs

    async def _container_log(self, session: Session, container: Container) -> bytes:
        tail = bytearray()
        agent, container_id = agent_of(container.node), session.container_id(container.rank)
        try:
            async for chunk in self._engine.logs(agent, container_id, follow=False, tail=LOG_TAIL_LINES):
                tail += chunk
                del tail[: -session.log_bytes]
        except UnreachableError as error:
            await reach.note(self._database, container.node, error)
            raise
        except PenstockError as error:
            # There is no container, or it never had a log: that is no reason to keep the session.
            log.info("no log", session=session.name, reason=str(error))
        except OUTAGES:
            raise
        except Exception:
            log.exception("no log", session=session.name)
        return bytes(tail)

    async def _change(self, session: Session, noted: Noted, **values: Any) -> bool:
        """Write what is new of a session and its containers; returns whether nobody else was faster."""
        return await self._outcomes.write(Outcome(Change.of(session, values, noted)))


def _is_taken(container: Container) -> bool:
    """Return whether what nobody wants on its node holds what a container was given: that was told since."""
    node, orphaned = container.node, container.node.orphaned_milli
    shares = container.gpu_shares
    return node.unknown_containers > 0 or any(orphaned.get(each.uuid, 0) + each.milli > MILLI for each in shares)


def _refusal(node: str, error: PenstockError) -> PenstockError:
    """Return what an agent said with its name; ConflictError where it may say something else later."""
    reason = Sentence("{node} refused it: {why}", node=node, why=error.problems[0].reason)
    return ConflictError(reason) if isinstance(error, ConflictError) else InputError(reason)


def _last_reason(session: Session, reason: str) -> str:
    """Why it came to its end stays, but not what held that up."""
    return sessions.DELETED if session.cause == FREED_LATER else reason
