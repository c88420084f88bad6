"""Writer of the audit log: brings what people did from the database into the log's files; only the leader runs it."""

from __future__ import annotations

from api.clock import Clock
from api.database import Database
from api.resources.audit import service
from api.settings import Settings
from common.errors import UnavailableError

RETRY_S = 15.0
"""How long after the log could not be written it is tried again."""
EXPIRE_S = 3600.0
"""How often is looked which files are too old."""


class AuditWriter:
    """Writes into the files of the settings; without them there is nothing to write."""

    def __init__(self, database: Database, settings: Settings, clock: Clock) -> None:
        """Take note of where to write; raises UnavailableError where the key cannot be read."""
        self._database = database
        self._files = service.log_of(settings)
        self._settings = settings
        self._clock = clock
        self._due = self._expires = float("-inf")

    def is_due(self, *, unwritten: bool) -> bool:
        """Return whether a log is kept, and it is time to write what is `unwritten`, or to see which files go."""
        moment = self._clock.monotonic()
        return self._files is not None and moment >= self._due and (unwritten or moment >= self._expires)

    async def work(self) -> None:
        """Write all there is, and delete what is too old; a crash in between leaves no line out and none twice.

        Raises UnavailableError where the log cannot be written; it is not tried again at once.
        """
        try:
            await self._write()
            await self._expire()
        except UnavailableError:
            self._due = self._clock.monotonic() + RETRY_S
            raise

    async def _write(self) -> None:
        while self._files is not None:
            async with self._database.transaction() as db:
                if not await service.write(db, self._files):
                    return

    async def _expire(self) -> None:
        if self._files is not None and self._clock.monotonic() >= self._expires:
            await service.expire(self._database, self._files, self._settings, self._clock.now())
            self._expires = self._clock.monotonic() + EXPIRE_S
