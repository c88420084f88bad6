"""Writer of the audit log: brings what people did from the database into the log's files; only the leader runs it."""

from __future__ import annotations

from api.database import Database
from api.resources.audit import service
from api.settings import Settings


class AuditWriter:
    """Writes into the files of the settings; without them there is nothing to write."""

    def __init__(self, database: Database, settings: Settings) -> None:
        """Take note of where to write; raises UnavailableError where the key cannot be read."""
        self._database = database
        self._files = service.log_of(settings)

    @property
    def is_on(self) -> bool:
        """Whether a log is kept."""
        return self._files is not None

    async def work(self) -> None:
        """Write all there is; a crash in between leaves no line out and none twice."""
        while self._files is not None:
            async with self._database.transaction() as db:
                if not await service.write(db, self._files):
                    return
