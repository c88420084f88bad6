"""Entrance to apps with names of their own: a ticket that counts once, for which a browser gets a cookie there.

The console's cookie is for its own host. From an app a browser is sent to the console, with a `state` that only this
browser has as a cookie of the app; who is signed in there comes back with a ticket for this app and this state.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime, timedelta
from urllib.parse import quote
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import passwords
from api.resources.apps import repository, service
from api.tables.logins import AppLogin
from common.app_addresses import AppName

TICKET_S = 60
"""How long a ticket counts, in seconds: a browser goes straight from the console to the app."""
STATE = r"[0-9a-f]{32}"
PLACE = r"/(?:[\x21-\x2e\x30-\x5b\x5d-\x7e][\x21-\x5b\x5d-\x7e]*)?"
"""Where in an app a browser goes, which no browser reads as another origin; empty after the slash is the start."""


def new_state(known: str) -> str:
    """Return what tells a browser from others: what it has already, so that it may open several pages at once."""
    return known if re.fullmatch(STATE, known) else secrets.token_hex(16)


def path(host: str, uri: str, state: str) -> str:
    """Return where in the console a browser gets its ticket for an app.

    From a place that it might read as another origin it comes back to the start of the app.
    """
    place = uri if re.fullmatch(PLACE, uri) else "/"
    return f"{service.OPEN_PATH}?state={state}&next={quote(f'https://{host}{place}', safe='')}"


async def issue(db: AsyncSession, login_id: UUID, app: AppName, state: str, at: datetime) -> str:
    """Return a ticket for an app by a login at the console; what nobody used in time is forgotten on the way."""
    await repository.remove_ended(db, at)
    ticket = passwords.new_secret()
    row = AppLogin(
        login_id=login_id,
        session_id=app.session_id,
        port=app.port,
        ticket=passwords.fingerprint(ticket),
        state=passwords.fingerprint(state),
        expires_at=at + timedelta(seconds=TICKET_S),
    )
    repository.add(db, row)
    return ticket


async def redeem(db: AsyncSession, ticket: str, state: str, app: AppName, at: datetime) -> str | None:
    """Return the secret of a cookie for a ticket; None where it does not count, or does no more."""
    secret = passwords.new_secret()
    ticket, state, cookie = (passwords.fingerprint(each) for each in (ticket, state, secret))
    until = at + timedelta(seconds=TICKET_S)
    used = await repository.use_ticket(db, ticket, state, app, at=at, cookie=cookie, until=until)
    return secret if used else None


async def is_anothers(db: AsyncSession, ticket: str, app: AppName, at: datetime) -> bool:
    """Return whether a ticket that does not count in a browser would in another, or before this one had a new state."""
    return await repository.counts(db, passwords.fingerprint(ticket), app, at)
