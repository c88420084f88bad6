"""Endpoints of the scheduler: what it decided last, and why each waiting session waits."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Response
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.control.loop import Loop
from api.endpoints.access import action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading
from api.lists import session_views
from api.resources.sessions.views import QueueEntryView
from api.scheduler.record import save

router = Router(prefix="/scheduler", tags=["scheduler"])


async def loop_of(connection: HTTPConnection) -> Loop:
    """Return the application's scheduler."""
    loop: Loop = connection.app.state.manager.loop
    return loop


@router.get("/queue")
@action(Action.SCHEDULER_READ)
async def list_queue(db: Reading) -> list[QueueEntryView]:
    """List the sessions that wait, in the order in which they were served last, with the reason of each."""
    return await session_views.queue(db)


@router.get("/cycle", response_class=Response, responses={200: {"content": {"application/json": {}}}})
@action(Action.SCHEDULER_READ)
async def download_cycle(loop: Annotated[Loop, Depends(loop_of)]) -> Response:
    """Download the last cycle: what the scheduler saw and what it decided, to be looked at or decided again.

    A process that does not schedule answers with what it would decide now.
    """
    cycle = await loop.last_cycle()
    return Response(
        save(cycle.snapshot, cycle.decision),
        media_type="application/json",
        headers={"Content-Disposition": 'attachment; filename="cycle.json"'},
    )
