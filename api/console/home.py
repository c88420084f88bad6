"""The start page: what the caller runs and why it waits, limits and what is left of them, and where there is room."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request, Response

from api.auth.policy import Action
from api.console import formats, pages
from api.console.routes import Router
from api.console.texts import gettext
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading
from api.lists import stamps, summary
from api.lists.nodes import Remembered
from api.lists.summary import LimitView, RememberedRoom
from api.tables.groups import ResourceGroup, group_nodes, group_projects, group_users
from api.tables.sessions import Session

GROUPS = (ResourceGroup, group_nodes, group_projects, group_users)

router = Router()


@router.get("/")
@action(Action.SESSION_READ)
async def show_home(
    *, request: Request, caller: Caller, db: Reading, settings: SettingsOf, remembered: Remembered, room: RememberedRoom
) -> Response:
    """Show the start page."""
    free = await room.by_group(db, remembered)
    stamp = await pages.stamp(request, db, (*stamps.PEOPLE, *GROUPS, Session), caller.id, free)
    if answer := pages.unchanged(request, stamp):
        return answer
    mine = await summary.read(db, caller, free, apps=settings.apps)
    values = {"mine": mine, "limits": [_row(limit) for limit in mine.limits], "shown": summary.SHOWN}
    return await pages.live(request, "home.html", "home_live.html", values, stamp=stamp)


def _row(limit: LimitView) -> tuple[str, ...]:
    """Return what a limit is of, what is held, what is waited for, what may be, and what is left."""
    amounts: dict[str, tuple[str, Callable[[int], str]]] = {
        "sessions": (gettext("Sessions"), formats.number),
        "gpu_milli": (gettext("GPUs"), formats.gpus),
        "cpu_milli": (gettext("CPU cores"), formats.cores),
        "memory_mib": (gettext("Memory"), lambda mib: formats.memory(mib) or "0"),
    }
    name, written = amounts[limit.of]
    held, waiting = (
        gettext("without limit") if amount is None else written(amount) for amount in (limit.held, limit.waiting)
    )
    if limit.most is None or limit.left is None:
        return name, held, waiting, gettext("no limit"), ""
    return name, held, waiting, written(limit.most), written(limit.left)
