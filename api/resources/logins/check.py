"""The check of name and password: as this site knows them, or as its directory says."""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import directory, passwords
from api.auth.directory import Person
from api.database import Database
from api.resources.logins import departures
from api.resources.schemas import is_user_name
from api.resources.users import service as users
from api.settings import Settings
from api.tables.users import User, UserSource
from common.errors import ForbiddenError, UnavailableError
from common.sentence import Sentence


async def check(database: Database, settings: Settings, name: str, password: str) -> User | Person:
    """Return the user who signs in, or the person whom the directory lets in, whose account `account` finds.

    Raises UnauthenticatedError, ForbiddenError, or UnavailableError. Hashing and the directory take a while: no
    connection to the database is held meanwhile.
    """
    async with database.reading() as db:
        known = await users.find(db, name)
    asks_directory = settings.ldap_url is not None and is_user_name(name)
    if not ((known is None and asks_directory) or (known is not None and known.source is UserSource.LDAP)):
        return await users.check_password(known, password)
    person = await directory.person(settings, name, password)
    if person is None:
        # Somebody whom the directory does not know shall not be told apart by the time that the answer takes.
        await passwords.matches(None, password)
        raise users.wrong_login()
    return person


async def account(db: AsyncSession, name: str, checked: User | Person) -> User:
    """Return whose login it becomes; what the directory makes of the account comes with that login, or not at all.

    Raises ForbiddenError where that person is not let in.
    """
    if isinstance(checked, User):
        return checked
    if checked.disabled:
        raise ForbiddenError(
            Sentence("{name} is disabled in the directory", name=name),
            where="name",
            hint=Sentence("ask its administrator"),
        )
    return users.check_enabled(await users.of_person(db, name, checked))


async def forbidden(database: Database, settings: Settings, name: str, checked: User | Person) -> None:
    """Look whether the person who is not let in, or whose account it was until now, has left.

    What lets that person in does not wait for the next look.
    """
    if isinstance(checked, Person):
        with suppress(UnavailableError):
            await departures.look(database, settings, name, checked.entry_id)
