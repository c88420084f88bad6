"""The way from the console to apps with names of their own: who is signed in here goes on with a ticket."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query, Response
from fastapi.responses import RedirectResponse

from api.auth.policy import Action
from api.clock import now
from api.console import pages
from api.console.routes import SEE_OTHER, Router
from api.endpoints.access import KnownCallerOf, SettingsOf, action
from api.endpoints.apps import index_of
from api.endpoints.transactions import Transaction
from api.resources.apps import entrance, service
from api.resources.apps.service import AppIndex
from api.tables.logins import Login
from common.errors import ConflictError

ENTRANCE = "/-/enter"
"""Where the edge takes tickets, on the host of each app."""

_ADDRESS = re.compile(rf"https://(?P<host>[^/?#@\\]+)(?P<place>{entrance.PLACE})?", re.ASCII)

router = Router()


@router.get(service.OPEN_PATH)
@action(Action.APP_OPEN)
async def open_app(
    *,
    known: KnownCallerOf,
    db: Transaction,
    index: Annotated[AppIndex, Depends(index_of)],
    settings: SettingsOf,
    wanted: Annotated[str, Query(alias="next", max_length=16_384)],
    state: Annotated[str, Query(pattern=rf"^{entrance.STATE}$")],
) -> Response:
    """Send a browser on to an app that the caller may open; nothing but the app's own host gets the ticket."""
    origin, place = _parted(wanted)
    named = settings.apps.named(origin) if settings.apps.is_own_host(origin) else None
    if named is None:
        raise service.unknown()
    app = await index.find_named(db, named)
    service.check_rights(app, known.identity)
    if known.table is not Login:
        raise ConflictError("an API key needs no ticket", hint="send the key to the app's own address")
    ticket = await entrance.issue(db, known.row_id, named, state, now())
    query = urlencode({"ticket": ticket, "to": place})
    return RedirectResponse(f"https://{origin}{ENTRANCE}?{query}", SEE_OTHER, pages.headers(settings))


def _parted(wanted: str) -> tuple[str, str]:
    """Return the host that an address names, and the place there; nothing of what browsers might read otherwise."""
    found = _ADDRESS.fullmatch(wanted)
    return (found["host"], found["place"] or "/") if found else ("", "/")
