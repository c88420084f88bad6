"""The nodes: what they are, what is in use of them, and taking them out of service and back."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Query, Request, Response

from api.auth.policy import Action
from api.console import pages
from api.console.routes import REFRESH, Router
from api.control import administration
from api.control.manager import WakeAfterwards
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import nodes, stamps
from api.lists.nodes import Filters, Remembered
from api.resources.nodes import rights
from api.resources.nodes.schemas import ModeRequest, NodeChange
from api.resources.schemas import NamePath
from api.tables.nodes import NodeMode, NodeState
from common.interfaces import MAX_NAME

SHOWN = 2000
"""As many as a site is planned for."""

router = Router(prefix="/nodes")


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
        "may_change": caller.allows(Action.NODE_CHANGE),
    }
    return await pages.live(request, "nodes.html", "nodes_live.html", values, stamp=stamp)


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
    *,
    name: NamePath,
    mode: Annotated[NodeMode, Form()],
    caller: Caller,
    db: Transaction,
    _wake: WakeAfterwards,
) -> None:
    """Take a node out of service or back; who works on one that is drained has ten minutes."""
    await administration.set_mode(db, name, ModeRequest(mode=mode), caller)
