"""The check of name and password: as this site knows them, or as its directory says."""

from __future__ import annotations

from contextlib import suppress

from api.auth import directory, passwords
from api.database import Database
from api.resources.logins import departures
from api.resources.schemas import is_user_name
from api.resources.users import service as users
from api.settings import Settings
from api.tables.users import User, UserSource
from common.errors import ForbiddenError, UnavailableError


async def check(database: Database, settings: Settings, name: str, password: str) -> User:
    """Return the user who signs in; raises UnauthenticatedError, ForbiddenError, or UnavailableError.

    Hashing and the directory take a while: no connection to the database is held meanwhile.
    """
    async with database.reading() as db:
        known = await users.find(db, name)
    asks_directory = settings.ldap_url is not None and is_user_name(name)
    if (known is None and asks_directory) or (known is not None and known.source is UserSource.LDAP):
        return await _check_in_directory(database, settings, name, password)
    return await users.check_password(known, password)


async def _check_in_directory(database: Database, settings: Settings, name: str, password: str) -> User:
    person = await directory.person(settings, name, password)
    if person is None:
        # Somebody whom the directory does not know shall not be told apart by the time that the answer takes.
        await passwords.matches(None, password)
        raise users.wrong_login()
    try:
        if person.disabled:
            raise ForbiddenError(f"{name} is disabled in the directory", where="name", hint="ask its administrator")
        async with database.transaction() as db:
            return users.check_enabled(await users.of_person(db, name, person))
    except ForbiddenError:
        # Whose account it was until now has perhaps left: what lets that person in does not wait for the next look.
        with suppress(UnavailableError):
            await departures.look(database, settings, name, person.entry_id)
        raise
