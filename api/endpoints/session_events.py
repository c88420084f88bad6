"""Endpoint of what became of a session."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from api.auth.policy import Action
from api.endpoints.access import Caller, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading
from api.resources.schemas import NamePath, NameQuery
from api.resources.sessions import events, service
from api.resources.sessions.views import SessionEventView

router = Router(prefix="/sessions", tags=["sessions"])


@router.get("/{name}/events")
@action(Action.SESSION_READ)
async def session_events(
    *,
    name: NamePath,
    project: NameQuery,
    caller: Caller,
    db: Reading,
    limit: Annotated[int, Query(ge=1, le=events.MOST)] = events.MOST,
) -> list[SessionEventView]:
    """List the states that a session came to and why, the newest first."""
    return await events.newest(db, (await service.get(db, project, name, caller)).id, limit)
