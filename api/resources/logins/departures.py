"""Departures: who has left the site's directory, or is disabled there, keeps neither keys nor logins."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from uuid import UUID

from api.auth import directory
from api.clock import now
from api.database import Database
from api.resources.api_keys import service as api_keys
from api.resources.audit import lines
from api.resources.audit import service as audit
from api.resources.audit.chain import Entry
from api.resources.logins import service as logins
from api.resources.users import service as users
from api.settings import Settings
from api.tables.users import User

LEFT = "has left the directory, or is disabled there"


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
    if unbound:
        async with database.transaction() as db:
            for account in unbound:
                await users.bind(db, account, present[account.name])
    departed = set()
    for account in gone:
        # each by itself, with a line of its own
        async with database.transaction() as db:
            if await users.hold_departed(db, account):
                departed.add(account.id)
                if audit.is_on(settings):
                    await audit.begin(db, _entry(account))
                await logins.end_all(db, account.id)
                await api_keys.revoke_all(db, account.id)
    return departed


def _entry(account: User) -> Entry:
    """Return the line of the audit log: nobody has asked for it, and the account's domain sees it."""
    return lines.by_itself(
        time=f"{now():%FT%T.%fZ}",
        domain=account.domain,
        action="user_departure",
        method="DELETE",
        object=f"users/{account.name}",
        status=HTTPStatus.OK,
        reason=f"{account.name} {LEFT}",
    )
