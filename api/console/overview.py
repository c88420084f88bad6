"""The whole site at a glance: its GPUs and who has them, what waits and why, and every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request, Response

from api.auth.policy import Action
from api.console import pages
from api.console.routes import Router
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.nodes import MAX_PAGE
from api.endpoints.transactions import Reading
from api.lists import nodes, queue, session_search, session_views, stamps
from api.lists.nodes import Filters, Remembered
from api.lists.session_search import Search
from api.resources.projects import service as projects
from api.resources.sessions import service as sessions
from api.tables.nodes import NodeMode, NodeState
from api.tables.sessions import Session, State

SHOWN = 10

router = Router(prefix="/overview")


@router.get("")
@action(Action.SCHEDULER_READ)
async def show_overview(
    *, request: Request, caller: Caller, db: Reading, settings: SettingsOf, remembered: Remembered
) -> Response:
    """Show the site."""
    groups = await remembered.by_node(db)
    page = await nodes.page(db, Filters(), groups, limit=MAX_PAGE)
    stamp = await stamps.stamp(db, (*stamps.PEOPLE, Session), caller.id, page.tag)
    if answer := pages.unchanged(request, stamp):
        return answer
    found = await nodes.rows(db, [entry.id for entry in page.entries], groups)
    running, _ = await session_search.page(db, caller, Search(states=[State.RUNNING]), limit=SHOWN)
    waiting, more = await queue.page(db, limit=SHOWN, after=None)
    counts = await session_search.counts(db, caller, Search())
    used = await sessions.used_by_project(db)
    held = [(project, used.get(project.id, 0)) for project in await projects.visible(db, caller)]
    values = {
        "totals": _totals(found),
        "counts": {state.value: counts.get(state, 0) for state in State},
        "projects": sorted(held, key=lambda one: (-one[1], one[0].name))[:SHOWN],
        "running": await session_views.entries(db, running, settings.apps_url),
        "waiting": waiting,
        "more": more,
        "nodes": found,
    }
    return await pages.live(request, "overview.html", "overview_live.html", values, stamp=stamp)


def _totals(found: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many nodes there are and can be used, and what their GPUs are and what is held of them."""
    usable = [node for node in found if node["state"] is NodeState.READY and node["mode"] is NodeMode.ACTIVE]
    return {
        "nodes": len(found),
        "usable": len(usable),
        "gpu_milli": sum(node["gpu_milli"] for node in found),
        "used_milli": sum(node["used_milli"] for node in found),
    }
