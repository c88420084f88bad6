"""The nodes: what they are, what is in use of them, and taking them out of service and back."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Query, Request, Response
from pydantic import BaseModel, Field

from api.auth.policy import Action
from api.console import formats, pages
from api.console.checks import NOT_WELL
from api.console.routes import REFRESH, Router, back_to
from api.console.texts import gettext
from api.control import administration
from api.control.manager import WakeAfterwards
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import nodes, session_pages, session_views, stamps
from api.lists.nodes import Filters, Remembered
from api.resources.health import service as health
from api.resources.nodes import rights
from api.resources.nodes.schemas import ModeRequest, NodeChange
from api.resources.schemas import NamePath
from api.tables.nodes import NodeMode, NodeState
from api.tables.sessions import HOLDING
from common.interfaces import MAX_NAME

SHOWN = 2000
"""As many as a site is planned for."""
OF_ONE = 100
"""So many sessions and checks of a node are shown."""
DRAIN_MINUTES = 10
MOST_MINUTES = 7 * 24 * 60

router = Router(prefix="/nodes")


class ModeForm(BaseModel):
    """What is wanted of a node, and how many minutes people have to save their work where it is drained."""

    mode: NodeMode
    minutes: Annotated[int, Field(ge=0, le=MOST_MINUTES)] = DRAIN_MINUTES


@router.get("")
@action(Action.NODE_READ)
async def list_nodes(
    *,
    request: Request,
    caller: Caller,
    db: Reading,
    remembered: Remembered,
    state: NodeState | None = None,
    mode: NodeMode | None = None,
    q: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Show the nodes that the caller may see, by name: those with some letters in it."""
    word = q.replace("\0", "").strip().lower() or None
    filters = Filters(state, mode, None, await rights.within(db, caller), word)
    groups = await remembered.by_node(db, within=filters.within)
    page = await nodes.page(db, filters, groups, limit=SHOWN)
    stamp = await pages.stamp(request, db, stamps.PEOPLE, caller.id, page.tag, request.url)
    if answer := pages.unchanged(request, stamp):
        return answer
    found = await nodes.rows(db, [entry.id for entry in page.entries], groups)
    values = {
        "q": q,
        "nodes": found,
        "more": page.more,
        "tabs": _tabs(state, mode),
        "state": state,
        "mode": mode,
        "may_change": caller.allows(Action.NODE_CHANGE),
    }
    return await pages.live(request, "nodes.html", "nodes_live.html", values, stamp=stamp)


@router.get("/{name}")
@action(Action.NODE_READ)
async def show_node(*, name: NamePath, request: Request, caller: Caller, db: Reading, settings: SettingsOf) -> Response:
    """Show all of a node: what it is, who holds its GPUs, the sessions that the caller may see, and its checks."""
    await rights.check(db, name, caller, Action.NODE_READ)
    node = await nodes.one(db, name)
    filters = session_pages.Filters(node=name, states=HOLDING)
    page = await session_pages.page(db, caller, filters, limit=OF_ONE, after=None, apps=settings.apps)
    sessions = await session_views.entries(db, [entry.id for entry in page.entries], settings.apps)
    sees_checks = caller.allows(Action.HEALTH_READ)
    values = {
        "node": node,
        "held": await nodes.held(db, node["id"]),
        "sessions": sessions,
        "seen": {session.id: session for session in sessions},
        "checks": await health.worst(db, settings, name, NOT_WELL, OF_ONE) if sees_checks else None,
        "may_change": caller.allows(Action.NODE_CHANGE),
        "minutes": DRAIN_MINUTES,
        "most_minutes": MOST_MINUTES,
    }
    return await pages.live(request, "node.html", "node_live.html", values)


@router.post("/{name}/interface", status_code=204, dependencies=[REFRESH])
@action(Action.NODE_CHANGE)
async def choose_interface(
    *, name: NamePath, interface: Annotated[str, Form(max_length=MAX_NAME)] = "", caller: Caller, db: Transaction
) -> None:
    """Choose the network interface by which the containers of a node meet those of other nodes."""
    await administration.change(db, name, NodeChange(interface=interface), caller)


@router.post("/{name}/mode", status_code=204, dependencies=[REFRESH])
@action(Action.NODE_CHANGE)
async def set_mode(
    *, name: NamePath, form: Annotated[ModeForm, Form()], caller: Caller, db: Transaction, _wake: WakeAfterwards
) -> None:
    """Take a node out of service or back; who works on one that is drained has some minutes."""
    await administration.set_mode(db, name, ModeRequest(mode=form.mode, drain_timeout_s=60 * form.minutes), caller)


@router.post("/{name}/delete", status_code=204, dependencies=[back_to("/nodes")])
@action(Action.NODE_DELETE)
async def delete_node(name: NamePath, caller: Caller, db: Transaction, _wake: WakeAfterwards) -> None:
    """Delete a node that is lost, or in maintenance and empty."""
    await administration.remove(db, name, caller)


def _tabs(state: NodeState | None, mode: NodeMode | None) -> list[tuple[str, str, bool]]:
    """Return the address and name of each part of the list, and whether it is shown."""
    tabs = [("/nodes", gettext("all"), not (state or mode))]
    tabs += [(f"/nodes?state={each}", formats.name(each), each is state) for each in NodeState]
    out_of_service = (each for each in NodeMode if each is not NodeMode.ACTIVE)
    return tabs + [(f"/nodes?mode={each}", formats.name(each), each is mode) for each in out_of_service]
