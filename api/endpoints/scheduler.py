"""Endpoints of the scheduler: what it decided last, and why each waiting session waits."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Depends, Query, Response
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.control.loop import Loop
from api.endpoints.access import action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading
from api.lists import queue, texts
from api.resources.schemas import PLACE
from api.resources.sessions.views import QueueEntryView
from api.scheduler.record import save

router = Router(prefix="/scheduler", tags=["scheduler"])

MAX_PAGE = 1000
"""How many sessions of the queue an answer has at most, and unless it is said."""


async def loop_of(connection: HTTPConnection) -> Loop:
    """Return the application's scheduler."""
    loop: Loop = connection.app.state.manager.loop
    return loop


@router.get("/queue", responses={200: {"headers": {"X-Next": texts.HEADERS["X-Next"]}}})
@action(Action.SCHEDULER_READ)
async def list_queue(
    *,
    db: Reading,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE,
    after: Annotated[
        str | None, Query(max_length=64, pattern=r"^[0-9]{1,10}\.[0-9]{1,16}\.[0-9a-f]{32}$"), PLACE
    ] = None,
) -> list[QueueEntryView]:
    """List the sessions that wait, in the order in which they were served last, with the reason of each.

    Where there are more than `limit`, `X-Next` is what to send as `after` to get those that follow.
    """
    entries, following = await queue.page(db, None, limit=limit, after=after)
    if following:
        response.headers["X-Next"] = following
    return entries


@router.get("/cycle", response_class=Response, responses={200: {"content": {"application/json": {}}}})
@action(Action.SCHEDULER_READ)
async def download_cycle(loop: Annotated[Loop, Depends(loop_of)]) -> Response:
    """Download the last cycle: what the scheduler saw and what it decided, to be looked at or decided again.

    A process that does not schedule answers with what it would decide now.
    """
    cycle = await loop.last_cycle()
    # on a large site this takes long
    text = await asyncio.to_thread(save, cycle.snapshot, cycle.decision)
    return Response(
        text,
        media_type="application/json",
        headers={"Content-Disposition": 'attachment; filename="cycle.json"'},
    )
