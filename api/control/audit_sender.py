"""Sender of the audit log: lets the site's syslog server have each line, once or more often; the leader runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

import structlog

from api.clock import Clock
from api.control.syslog_server import server_of
from api.database import Database
from api.resources.audit import service
from api.resources.audit.unsent import Unsent, unsent
from api.settings import Settings
from common.errors import UnavailableError

log = structlog.get_logger()

AT_ONCE = 200
"""So many lines have a connection together; each is shorter than 64 KiB, but for few."""
FIRST_S, LONGEST_S = 2.0, 60.0
"""How long after a try that failed the next one comes, at first and at most."""


class AuditSender:
    """Sends what is in the files; where the server is away, it gets all of it later, from where it stopped."""

    def __init__(self, database: Database, settings: Settings, clock: Clock) -> None:
        """Prepare; raises UnavailableError where the key cannot be read."""
        self._database = database
        self._files = service.log_of(settings)
        self._server = server_of(settings, settings.agent_cert, settings.agent_key)
        self._clock = clock
        self._due = float("-inf")
        self._wait_s = FIRST_S

    @property
    def is_due(self) -> bool:
        """Whether there is a server, and it is time to send."""
        return self._files is not None and self._server is not None and self._clock.monotonic() >= self._due

    async def work(self) -> None:
        """Send all there is."""
        if self._files is None:
            return
        async with self._database.reading() as db:
            sent, end = await service.sent(db), (await service.head(db)).seq
        following = unsent(self._files.after(sent.seq), sent.seq, end, f"{self._clock.now():%FT%T.%fZ}")
        reason, at = "", sent.seq
        try:
            while batch := await asyncio.to_thread(_take, following):
                await self._send(batch)
                at = batch[-1].seq
                await self._note(at, "", None, [one.fault for one in batch if one.fault])
        except (OSError, UnavailableError) as error:
            reason = str(error) or type(error).__name__
        if reason:
            self._due = self._clock.monotonic() + self._wait_s
            self._wait_s = min(2 * self._wait_s, LONGEST_S)
            log.warning("the syslog server does not have the audit log", reason=reason, last=at)
            await self._note(at, reason, sent.behind_since or self._clock.now())
        else:
            self._wait_s = FIRST_S

    async def _send(self, batch: list[Unsent]) -> None:
        if self._server is not None:
            await asyncio.to_thread(self._server.take, [(one.text, one.entry) for one in batch])

    async def _note(self, seq: int, reason: str, behind_since: datetime | None, faults: Sequence[str] = ()) -> None:
        async with self._database.transaction() as db:
            await service.note_sent(db, seq, reason, behind_since)
            if faults:
                await service.note_fault(db, faults[-1], self._clock.now())


def _take(following: Iterator[Unsent]) -> list[Unsent]:
    return list(islice(following, AT_ONCE))
