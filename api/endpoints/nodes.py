"""Endpoints of nodes, and the one where their agents report."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query, Request, Response

from api.auth.policy import Action
from api.clock import now
from api.control import administration
from api.control.manager import WakeAfterwards
from api.endpoints import auditing
from api.endpoints.access import (
    Agent,
    Caller,
    SettingsOf,
    action,
    check_speaks_for,
    clock_offset_s,
    for_agents,
    protocol_of_agent,
    sender_of,
)
from api.endpoints.routes import Router
from api.endpoints.transactions import DatabaseOf, Reading, Transaction
from api.engine.base import Engine
from api.lists import nodes, texts
from api.lists.nodes import Filters, Remembered
from api.lists.texts import TextsOf
from api.resources.nodes import rights
from api.resources.nodes.heartbeats import Heartbeats, interval_of
from api.resources.nodes.schemas import ModeRequest, NodeChange, NodeView
from api.resources.schemas import PLACE, Done, NamePath, NameQuery
from api.tables.nodes import NodeMode, NodeState
from common.audit_protocol import AUDIT_HEAD_HEADER
from common.protocol import (
    HEARTBEAT_PATH,
    PROTOCOL,
    PROTOCOL_HEADER,
    Heartbeat,
    HeartbeatReply,
)

router = Router(prefix="/nodes", tags=["nodes"])
agents = Router(tags=["agents"])

MAX_PAGE = 2000
"""Most nodes of one answer, and of one site."""


@router.get("", response_model=list[NodeView], responses=texts.RESPONSES)
@action(Action.NODE_READ)
async def list_nodes(
    *,
    caller: Caller,
    db: Reading,
    kept: TextsOf,
    remembered: Remembered,
    state: NodeState | None = None,
    mode: NodeMode | None = None,
    group: NameQuery | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE,
    after: Annotated[str | None, Query(max_length=63, pattern=r"^[A-Za-z0-9._-]+$"), PLACE] = None,
    if_none_match: Annotated[str | None, Header(max_length=256)] = None,
) -> Response:
    """List the nodes by name, and what of their GPUs is in use.

    An answer has as many as `limit` and a few MiB hold; where there are more, `X-Next` is what to send as `after` to
    get those that follow. An answer that is as it was, but for `last_seen`, is a 304 for who sends its `ETag` as
    `If-None-Match`.
    """
    filters = Filters(state, mode, group, await rights.within(db, caller))
    groups = await remembered.by_node(db, within=filters.within)
    page = await nodes.page(db, filters, groups, limit=limit, after=after)
    return await texts.answer(page, kept, lambda ids: nodes.texts(db, ids, groups), if_none_match)


@router.get("/{name}")
@action(Action.NODE_READ)
async def get_node(name: NamePath, caller: Caller, db: Reading) -> NodeView:
    """Show one node."""
    await rights.check(db, name, caller, Action.NODE_READ)
    return NodeView.model_validate(await nodes.one(db, name))


@router.patch("/{name}")
@action(Action.NODE_CHANGE)
async def change_node(name: NamePath, request: NodeChange, caller: Caller, db: Transaction) -> NodeView:
    """Choose the network interface by which the containers of a node meet those of other nodes.

    It holds for sessions that get their places after it, until another one is chosen or the node is deleted.
    """
    await administration.change(db, name, request, caller)
    return NodeView.model_validate(await nodes.one(db, name))


@router.patch("/{name}/mode")
@action(Action.NODE_CHANGE)
async def set_mode(
    name: NamePath, request: ModeRequest, caller: Caller, db: Transaction, _wake: WakeAfterwards
) -> NodeView:
    """Take a node out of service or back.

    In `maintenance` it takes nothing new and what runs stays. `draining` moves trainings elsewhere at once, warns
    people and ends their sessions after `drain_timeout_s`; then the node is in maintenance.
    """
    await administration.set_mode(db, name, request, caller)
    return NodeView.model_validate(await nodes.one(db, name))


@router.delete("/{name}")
@action(Action.NODE_DELETE)
async def delete_node(name: NamePath, caller: Caller, db: Transaction, _wake: WakeAfterwards) -> Done:
    """Delete a node that is lost, or in maintenance and empty."""
    await administration.remove(db, name, caller)
    return Done()


@router.delete("/{name}/unknown-containers")
@action(Action.NODE_CHANGE)
async def end_unknown_containers(name: NamePath, caller: Caller, database: DatabaseOf, request: Request) -> Done:
    """End the containers of a node that belong to sessions which the database does not know."""
    engine: Engine = request.app.state.engine
    async with database.transaction() as db:
        agent, containers = await administration.unknown(db, name, caller)
        await auditing.record(db, request)
    await administration.end_unknown(engine, agent, containers, caller)
    return Done()


@agents.post(
    HEARTBEAT_PATH,
    response_model_exclude_defaults=True,
    responses={204: {"description": "Heartbeat and answer are as they were the last time"}},
)
@for_agents
async def heartbeat(
    message: Heartbeat, agent: Agent, request: Request, response: Response, settings: SettingsOf
) -> HeartbeatReply:
    """Take an agent's heartbeat; the certificate must be that of the node it speaks of."""
    check_speaks_for(agent, message.name)
    heartbeats: Heartbeats = request.app.state.heartbeats
    at = now()
    heartbeats.receive(message, at, clock_offset_s(request, at), protocol_of_agent(request), sender_of(request))
    response.headers[PROTOCOL_HEADER] = str(PROTOCOL)
    if heartbeats.audit_head:
        response.headers[AUDIT_HEAD_HEADER] = heartbeats.audit_head
    return HeartbeatReply(interval_s=interval_of(message.name, settings.heartbeat_interval_s))
