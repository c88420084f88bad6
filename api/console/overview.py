"""The whole site at a glance: its GPUs and who has them, what waits and why, and every node."""

from __future__ import annotations

from fastapi import Request, Response

from api.auth.policy import Action
from api.console import pages
from api.console.routes import Router
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading
from api.lists import overview, stamps
from api.lists.nodes import Remembered
from api.lists.overview import RememberedIdle
from api.tables.sessions import Session

router = Router(prefix="/overview")


@router.get("")
@action(Action.SCHEDULER_READ)
async def show_overview(
    *, request: Request, caller: Caller, db: Reading, settings: SettingsOf, remembered: Remembered, idle: RememberedIdle
) -> Response:
    """Show the site."""
    totals, held = await overview.node_totals(db), await idle.by_project(db)
    stamp = await pages.stamp(request, db, (*stamps.PEOPLE, Session), caller.id, totals, sorted(held.items()))
    if answer := pages.unchanged(request, stamp):
        return answer
    groups = await remembered.by_node(db)
    values = {
        "site": await overview.read(db, caller, totals, held, groups, apps=settings.apps),
        "shown": overview.SHOWN,
    }
    return await pages.live(request, "overview.html", "overview_live.html", values, stamp=stamp)
