"""The start page: what the caller runs and why it waits, limits and what is left of them."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request, Response

from api.auth.policy import Action
from api.clock import now
from api.console import formats, pages
from api.console.routes import Router
from api.console.texts import gettext
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading
from api.lists import session_search, session_views, stamps
from api.lists.session_search import Search
from api.resources.projects import service as projects
from api.resources.sessions import service as sessions
from api.resources.user_policies import service as user_policies
from api.resources.user_policies.service import Limit
from api.tables.sessions import ENDED, Session, State

SHOWN = 10
LIVE = [state for state in State if state not in ENDED]

router = Router()


@router.get("/")
@action(Action.SESSION_READ)
async def show_home(request: Request, caller: Caller, db: Reading, settings: SettingsOf) -> Response:
    """Show the start page."""
    stamp = await stamps.stamp(db, (*stamps.PEOPLE, Session), caller.id)
    if answer := pages.unchanged(request, stamp):
        return answer
    ids, more = await session_search.page(db, caller, Search(mine=True, states=LIVE), limit=SHOWN)
    seen = [project for project in await projects.visible(db, caller) if projects.is_active(project, now())]
    used = await sessions.used_by_project(db)
    values = {
        "sessions": await session_views.entries(db, ids, settings.apps_url),
        "more": more,
        "limits": [_row(limit) for limit in await user_policies.limits(db, caller.id)],
        "projects": [(project, used.get(project.id, 0)) for project in seen[:SHOWN]],
    }
    return await pages.live(request, "home.html", "home_live.html", values, stamp=stamp)


def _row(limit: Limit) -> tuple[str, str, str, str]:
    """Return what a limit is of, what is held, what may be, and what is left."""
    amounts: dict[str, tuple[str, Callable[[int], str]]] = {
        "name": (gettext("Sessions"), str),
        "gpu_milli": (gettext("GPUs"), formats.gpus),
        "cpu_milli": (gettext("CPU cores"), formats.cores),
        "memory_mib": (gettext("Memory"), lambda mib: formats.memory(mib) or "0"),
    }
    name, written = amounts[limit.where]
    held = gettext("without limit") if limit.held is None else written(limit.held)
    if limit.most is None:
        return name, held, gettext("no limit"), ""
    return name, held, written(limit.most), written(max(0, limit.most - limit.held) if limit.held is not None else 0)
