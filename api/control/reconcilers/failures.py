"""Failures that nobody foresaw: what fails is tried some times and then given up, loudly, so that nothing has no end.

Agents and the database may be away for long, and what waits for them goes on waiting: that is nobody's failure. All
else that is raised and that nobody foresaw counts, for the session, the image or the container at which it was raised.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import InterfaceError, OperationalError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncSession

from api.control.reconcilers import change
from api.control.reconcilers.change import SessionUpdate
from api.resources.sessions.resizing import RESIZE
from api.tables.sessions import Session, State
from common.gpu.share import format_gpus
from common.sentence import Sentence

T = TypeVar("T")

log = structlog.get_logger()

TRIES = 5
"""So often in a row one thing may fail."""
RETRY_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""How long after each failure in a row the next try comes."""
OUTAGES = (OperationalError, InterfaceError, PendingRollbackError, PoolTimeoutError, asyncio.CancelledError)
"""What is raised while the database is away, or as the process ends."""


class Failures:
    """Counts how often in a row each thing has failed; one for each process."""

    def __init__(self) -> None:
        """Start with none."""
        self._counts: Counter[tuple[str, Hashable]] = Counter()

    def count(self, what: str, id_: Hashable) -> int:
        """Return how often in a row something failed."""
        return self._counts[what, id_]

    def note(self, what: str, id_: Hashable, error: BaseException) -> bool:
        """Count a failure, and log it; returns whether it is to be given up now: with each time after so many."""
        self._counts[what, id_] += 1
        count = self._counts[what, id_]
        log.error("failed unexpectedly", what=what, key=str(id_), times=count, exc_info=error)
        return count % TRIES == 0

    def forget(self, what: str, id_: Hashable) -> None:
        """Note that something did not fail."""
        self._counts.pop((what, id_), None)

    def judge(
        self, what: str, found: Iterable[Session], judge: Callable[[Session], SessionUpdate | None]
    ) -> list[SessionUpdate]:
        """Return what `judge` says of each session, and the end of one at which it failed too often."""
        updates = []
        for session in found:
            try:
                update = judge(session)
            except Exception as error:
                update = failed(session, what) if self.note(what, session.id, error) else None
            else:
                self.forget(what, session.id)
            if update:
                updates.append(update)
        return updates

    @asynccontextmanager
    async def alone(self, db: AsyncSession, session: Session, what: str) -> AsyncIterator[None]:
        """Undo what was begun for a session where it fails, and let all else go on; end the session in time."""
        try:
            async with db.begin_nested():
                yield
        except OUTAGES:
            raise
        except Exception as error:
            if self.note(what, session.id, error):
                await self.end(db, session, what)
        else:
            self.forget(what, session.id)

    async def write(self, db: AsyncSession, updates: Iterable[SessionUpdate]) -> None:
        """Write updates; one that somebody else has overtaken is left for the next time."""
        for update in updates:
            async with self.alone(db, update.session, Sentence("to write how far it is")):
                await change.apply(db, update)

    async def end(self, db: AsyncSession, session: Session, what: str) -> None:
        """End a session at which something failed too often; where that fails too, it is left as it is."""
        try:
            async with db.begin_nested():
                await change.apply(db, failed(session, what))
        except OUTAGES:
            raise
        except Exception:
            log.exception("cannot be ended", session=session.name, key=str(session.id))


async def all_of(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what calls at once return, when all of them have ended; raises what was raised, but not before."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]


def wait_s(tries: int) -> float:
    """Return how long the next try waits after so many others."""
    return RETRY_S[min(tries, len(RETRY_S) - 1)]


def failed(session: Session, what: str) -> SessionUpdate:
    """Return what becomes of a session at which the API failed too often.

    A change of its share is withdrawn; else it ends, and before that its containers are removed, unless it is that at
    which the API failed.
    """
    said, before = reason(what), session.before_milli
    if session.state is State.RUNNING and before is not None and session.resize_milli != before:
        told = Sentence("its share stays {gpus} GPU: {why}", gpus=format_gpus(before), why=said)
        return SessionUpdate(session, {"resize_milli": before, "reason": told, "cause": RESIZE})
    values: dict[str, Any] = {"reason": said, "cause": ""}
    if session.state in (State.PENDING, State.TERMINATING):
        return SessionUpdate(session, {**values, "state": State.FAILED, "position": 0})
    return SessionUpdate(session, {**values, "state": State.TERMINATING, "final_state": State.FAILED})


def reason(what: str) -> str:
    """Return what the user is told."""
    return Sentence(
        "the API failed {count} times {what}; tell the administrator, its log says why", count=TRIES, what=what
    )
