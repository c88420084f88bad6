"""Endpoints of nodes, and the one where their agents report."""

from __future__ import annotations

from fastapi import APIRouter, Request

from api.access import Agent, SettingsOf, action, for_agents
from api.database import Reading, now
from api.model import NamePath
from api.nodes import service
from api.nodes.heartbeats import Heartbeats
from api.nodes.schemas import NodeView
from api.policy import Action
from api.sessions import service as sessions
from appliance.agent.protocol import HEARTBEAT_PATH, Heartbeat, HeartbeatReply
from reservoir.errors import ForbiddenError

router = APIRouter(prefix="/nodes", tags=["nodes"])
agents = APIRouter(tags=["agents"])


@router.get("")
@action(Action.NODE_READ)
async def list_nodes(db: Reading) -> list[NodeView]:
    """List the nodes and what of their GPUs is in use."""
    used = await sessions.used_by_gpu(db)
    return [NodeView.of(node, used) for node in await service.every(db)]


@router.get("/{name}")
@action(Action.NODE_READ)
async def get_node(name: NamePath, db: Reading) -> NodeView:
    """Show one node."""
    return NodeView.of(await service.get(db, name), await sessions.used_by_gpu(db))


@agents.post(HEARTBEAT_PATH)
@for_agents
async def heartbeat(message: Heartbeat, agent: Agent, request: Request, settings: SettingsOf) -> HeartbeatReply:
    """Take an agent's heartbeat; the certificate must be that of the node it speaks of."""
    if message.name != agent:
        raise ForbiddenError(
            f"the certificate of {agent} cannot speak for {message.name}",
            where="name",
            cure="set PENSTOCK_AGENT_NAME to the name in the certificate",
        )
    heartbeats: Heartbeats = request.app.state.heartbeats
    heartbeats.receive(message, now())
    return HeartbeatReply(interval_s=settings.heartbeat_interval_s)
