"""Outcomes of operations: what is ready at the same time is written in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from api.control.reconcilers.failures import OUTAGES
from api.database import Database
from api.resources.sessions import changes, networks
from api.resources.sessions import service as sessions
from api.resources.sessions.changes import Change

log = structlog.get_logger()


@dataclass(frozen=True, eq=False)
class Outcome:
    """A change, the ends of a session's logs to keep, and the nodes that have left its network of a number."""

    change: Change
    logs: Sequence[sessions.LogPart] = ()
    network: int | None = None
    left: Collection[UUID] = ()
    written: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Outcomes:
    """Whoever comes first writes; those who come meanwhile wait, and the next of them writes for all."""

    def __init__(self, database: Database) -> None:
        """Start with none."""
        self._database = database
        self._turn = asyncio.Lock()
        self._waiting: list[Outcome] = []

    async def write(self, outcome: Outcome) -> bool:
        """Write an outcome; returns whether nobody else has changed the session since it was read."""
        self._waiting.append(outcome)
        async with self._turn:
            if not outcome.written.done():
                ready, self._waiting = self._waiting, []
                await self._write_all(ready)
        return outcome.written.result()

    async def _write_all(self, ready: Sequence[Outcome]) -> None:
        try:
            await self._write(ready)
        except OUTAGES as error:
            _tell(ready, error)
        except Exception as error:
            if len(ready) == 1:
                _tell(ready, error)
                return
            log.exception("outcomes are written one by one")
            for outcome in ready:
                await self._write_all([outcome])

    async def _write(self, ready: Sequence[Outcome]) -> None:
        async with self._database.transaction() as db:
            written = await changes.write(db, [outcome.change for outcome in ready])
            done = [outcome for outcome in ready if outcome.change.session.id in written]
            await sessions.keep_logs(db, [part for outcome in done for part in outcome.logs])
            for outcome in done:
                if outcome.network is not None:
                    await networks.leave(db, outcome.network, outcome.left)
        for outcome in done:
            outcome.change.take_over()
        for outcome in ready:
            outcome.written.set_result(outcome in done)


def _tell(ready: Sequence[Outcome], error: BaseException) -> None:
    """Raise the same for all who wait; what is cancelled as the process ends has no other outcome."""
    for outcome in ready:
        if isinstance(error, asyncio.CancelledError):
            outcome.written.cancel()
        else:
            outcome.written.set_exception(error)
