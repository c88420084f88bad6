"""The site at a glance, for those who look after it, and what somebody has and may have of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from api.auth.policy import Action
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.nodes import MAX_PAGE
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading
from api.lists import overview, summary
from api.lists.nodes import Remembered
from api.lists.overview import BOXES, SHOWN, OverviewView, RememberedIdle
from api.lists.summary import RememberedRoom, SummaryView

router = Router(tags=["overview"])


@router.get("/overview")
@action(Action.SCHEDULER_READ)
async def show_overview(
    *,
    caller: Caller,
    db: Reading,
    settings: SettingsOf,
    remembered: Remembered,
    idle: RememberedIdle,
    limit: Annotated[int, Query(ge=0, le=100)] = SHOWN,
    nodes: Annotated[int, Query(ge=0, le=MAX_PAGE)] = BOXES,
) -> OverviewView:
    """Show what there is of GPUs and who holds how much, with up to `limit` running and waiting sessions and `nodes`.

    What is idle is looked at every 15 seconds.
    """
    groups, held = await remembered.by_node(db), await idle.by_project(db)
    totals = await overview.node_totals(db)
    return await overview.read(db, caller, totals, held, groups, apps=settings.apps, limit=limit, boxes=nodes)


@router.get("/summary")
@action(Action.SESSION_READ)
async def show_summary(
    *,
    caller: Caller,
    db: Reading,
    settings: SettingsOf,
    remembered: Remembered,
    room: RememberedRoom,
    limit: Annotated[int, Query(ge=0, le=100)] = summary.SHOWN,
) -> SummaryView:
    """Show what the caller runs and why it waits, the limits and what is left of them, and where there is room.

    Of the sessions that have not ended there are up to `limit`, the newest first. Room is looked at every 5 seconds.
    """
    free = await room.by_group(db, remembered)
    return await summary.read(db, caller, free, apps=settings.apps, limit=limit)
