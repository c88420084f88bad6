"""Departures: who has left the site's directory, or is disabled there, keeps neither keys nor logins."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from api.auth import directory
from api.database import Database
from api.resources.api_keys import service as api_keys
from api.resources.logins import service as logins
from api.resources.users import service as users
from api.settings import Settings


async def look(
    database: Database, settings: Settings, name: str | None = None, entry_id: str | None = None
) -> Collection[UUID]:
    """Ask the directory for those whom it knows, all or the account of a name and of an entry; return who has left.

    Accounts that belong to no entry yet are given to the one that has their name. Raises UnavailableError where the
    directory does not answer, and then nothing has changed.
    """
    async with database.reading() as db:
        accounts = await users.of_directory(db, name, entry_id)
    if not accounts:
        return ()
    present = await directory.present(settings, {account.name: account.directory_id for account in accounts})
    gone = [account for account in accounts if account.name not in present]
    unbound = [account for account in accounts if account.name in present and account.directory_id is None]
    departed = set()
    if gone or unbound:
        async with database.transaction() as db:
            for account in unbound:
                await users.bind(db, account, present[account.name])
            for account in gone:
                if await users.hold_departed(db, account):
                    departed.add(account.id)
                    await logins.end_all(db, account.id)
                    await api_keys.revoke_all(db, account.id)
    return departed
