"""The terminal in the browser: a shell in a container of a session, through the API's own WebSocket."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from api.auth.policy import Action
from api.console import pages
from api.console.routes import Router
from api.endpoints.access import PREFIX, Caller, action
from api.endpoints.transactions import Reading
from api.resources.schemas import NamePath, NameQuery
from api.resources.sessions import relay, service
from api.tables.sessions import MAX_CONTAINERS

SHELL = ["sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi"]

router = Router(prefix="/sessions/{name}/terminal")


@router.get("")
@action(Action.SESSION_ENTER)
async def show_terminal(
    *,
    request: Request,
    name: NamePath,
    project: NameQuery,
    container: Annotated[int, Query(ge=0, lt=MAX_CONTAINERS)] = 0,
    caller: Caller,
    db: Reading,
) -> HTMLResponse:
    """Show a terminal on a container of a session that runs."""
    session = await service.get_for(db, project, name, caller, Action.SESSION_ENTER)
    relay.running_on(session, container)
    values = {
        "session": session,
        "container": container,
        "address": f"{PREFIX}/sessions/{session.id}/exec",
        "command": json.dumps(SHELL),
    }
    return pages.page(request, "terminal.html", values)
