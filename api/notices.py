"""Notices of the database, handed to those in this process that wait for them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from uuid import UUID

import structlog

from api.database import Database
from common.errors import UnavailableError

log = structlog.get_logger()

RETRY_S = 1.0


def of_user(user_id: UUID) -> str:
    """Return the subject of notices that somebody's rights have changed."""
    return f"user {user_id}"


def of_session(session_id: UUID) -> str:
    """Return the subject of notices that a session came to another state, or is gone."""
    return f"session {session_id}"


class Notices:
    """Who waits for which notices. Where the database cannot be heard, all are told to look for themselves."""

    def __init__(self, database: Database) -> None:
        """Prepare; nothing is heard before `run`."""
        self._database = database
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.heard = asyncio.Event()
        """Set while no notice can be missed."""

    async def run(self) -> None:
        """Hand on what comes, for ever."""
        while True:
            try:
                async with aclosing(self._database.notices()) as notices:
                    async for subject in notices:
                        self._tell(subject)
            except UnavailableError as error:
                log.warning("notices", reason=str(error))
            finally:
                self.heard.clear()
            await asyncio.sleep(RETRY_S)

    @contextmanager
    def about(self, *subjects: str) -> Iterator[asyncio.Event]:
        """Give an event that is set by each notice of any subject."""
        event = asyncio.Event()
        for subject in subjects:
            self._waiting[subject].add(event)
        try:
            yield event
        finally:
            for subject in subjects:
                self._waiting[subject].discard(event)
                if not self._waiting[subject]:
                    del self._waiting[subject]

    def _tell(self, subject: str) -> None:
        if subject:
            waiting = self._waiting.get(subject, set())
        else:
            # whatever there was before was missed
            self.heard.set()
            waiting = {event for events in self._waiting.values() for event in events}
        for event in waiting:
            event.set()


async def wait(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the next notice, for so long at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()
