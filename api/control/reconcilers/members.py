"""Containers of elastic sessions that come and go while the others run: they are launched, and they are removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from api.clock import now
from api.control.reconcilers import reach
from api.control.reconcilers.failures import all_of
from api.control.reconcilers.follow import Noted, after
from api.control.reconcilers.outcomes import Outcome, Outcomes
from api.database import Database
from api.engine.base import Engine, UnreachableError
from api.resources.sessions import elastic
from api.resources.sessions.changes import Change
from api.resources.sessions.relay import agent_of
from api.tables.sessions import Container, Session
from common.errors import ConflictError, PenstockError
from common.protocol import ContainerState

log = structlog.get_logger()

Launch = Callable[[Session, Container], Coroutine[Any, Any, ContainerState | PenstockError]]


class MemberChanges:
    """What the scheduler wants of the containers of a running session is done, as often as it takes."""

    def __init__(self, database: Database, engine: Engine, outcomes: Outcomes, launch: Launch, grace_s: int) -> None:
        """`launch` asks an agent for a container; one that is given up has `grace_s` to end by itself."""
        self._database, self._engine = database, engine
        self._outcomes, self._launch, self._grace_s = outcomes, launch, grace_s

    async def change(self, session: Session) -> bool:
        """Remove what is given up, then launch what is new; returns whether that is settled."""
        leaving = [each for each in session.containers if each.leaving]
        if leaving and not await self._remove(session, leaving):
            return False
        new = [each for each in session.containers if each.status is None and not each.leaving]
        return not new or (not leaving and await self._add(session, new))

    async def _remove(self, session: Session, leaving: Sequence[Container]) -> bool:
        answers = await asyncio.gather(*(self._remove_one(session, each) for each in leaving))
        gone = [each.rank for each, is_gone in zip(leaving, answers, strict=True) if is_gone]
        if gone:
            async with self._database.transaction() as db:
                if not await elastic.forget(db, session, gone):
                    return False
            log.info("shrunk", session=session.name, project=session.project.name, ranks=gone)
        return len(gone) == len(leaving)

    async def _remove_one(self, session: Session, container: Container) -> bool:
        error: PenstockError | None = None
        try:
            agent = agent_of(container.node)
            await self._engine.terminate(agent, session.container_id(container.rank), self._grace_s)
        except PenstockError as found:
            error = found
        await reach.note(self._database, container.node, error)
        return error is None

    async def _add(self, session: Session, new: Sequence[Container]) -> bool:
        """Ask for new containers; one that an agent refuses is given up, and the others go on without it."""
        answers = await all_of(self._launch(session, container) for container in new)
        outcome = dict(zip((container.rank for container in new), answers, strict=True))
        states = {rank: answer for rank, answer in outcome.items() if isinstance(answer, ContainerState)}
        values, found = after(session, states, now())
        errors = {rank: answer for rank, answer in outcome.items() if isinstance(answer, PenstockError)}
        refused = [rank for rank, each in errors.items() if not isinstance(each, UnreachableError | ConflictError)]
        noted: Noted = {**found, **{rank: {"leaving": True} for rank in refused}}
        if values or any(noted.values()):
            await self._outcomes.write(Outcome(Change.of(session, values, noted)))
        log.info("grown", session=session.name, project=session.project.name, ranks=sorted(states))
        return not errors
