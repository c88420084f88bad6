"""Check of the people whom the site's directory knows: whether it still has those who have anything here."""

from __future__ import annotations

from api.clock import Clock
from api.control.reconcilers import change, rights
from api.database import Database
from api.resources.logins import departures
from api.resources.sessions import lifecycle
from api.settings import Settings


class DirectoryCheck:
    """Looks again and again, and ends what waits of those who have left; without a directory, never."""

    def __init__(self, database: Database, settings: Settings, clock: Clock) -> None:
        """Begin with the first look."""
        self._database = database
        self._settings = settings
        self._clock = clock
        self._looked = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether it is time to look."""
        waited_s = self._clock.monotonic() - self._looked
        return self._settings.ldap_url is not None and waited_s >= self._settings.ldap_check_s

    async def look(self) -> None:
        """Ask the directory; raises UnavailableError where it does not answer. That is no reason to ask sooner."""
        self._looked = self._clock.monotonic()
        departed = await departures.look(self._database, self._settings)
        if departed:
            async with self._database.transaction() as db:
                for session in await lifecycle.before_start_of_users(db, departed):
                    await change.apply(db, rights.end(session, f"{session.user_name} {departures.LEFT}"))
