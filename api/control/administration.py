"""Administration of nodes: out of service and back, deletion, the end of what nobody knows on them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.control.reconcilers import drains, losses
from api.engine.base import AgentAddress, Engine
from api.resources.images import service as images
from api.resources.nodes import rights, service
from api.resources.nodes.schemas import ModeRequest, NodeChange
from api.resources.sessions import lifecycle
from api.resources.sessions import service as sessions
from api.resources.sessions.relay import agent_of
from api.tables.nodes import Node, NodeMode, NodeState
from api.tables.sessions import HOLDING
from common.errors import ConflictError

log = structlog.get_logger()

GRACE_S = 5


async def set_mode(db: AsyncSession, name: str, request: ModeRequest, caller: Identity) -> Node:
    """Change what is wanted of a node; the reconcilers do the rest of a drain."""
    await rights.check(db, name, caller, Action.NODE_CHANGE)
    until = now() + timedelta(seconds=request.drain_timeout_s) if request.mode is NodeMode.DRAINING else None
    node = await service.set_mode(db, name, request.mode, until)
    if request.mode is not NodeMode.DRAINING:
        await drains.call_off(db, node)
    log.info("mode", node=name, mode=str(request.mode), by=caller.name)
    return node


async def change(db: AsyncSession, name: str, request: NodeChange, caller: Identity) -> Node:
    """Choose the interface by which a node's containers meet others; sessions that have places keep theirs."""
    await rights.check(db, name, caller, Action.NODE_CHANGE)
    hidden = await rights.hidden(db, caller)
    node = await service.choose_interface(db, name, request.interface, hidden)
    log.info("interface", node=name, interface=request.interface, by=caller.name)
    return node


async def close_others(db: AsyncSession, workers: Collection[str], *, check: bool) -> list[dict[str, Any]]:
    """Let nodes that are none of the site's workers take nothing new, and return what runs on them.

    Lost ones are left out: what ran there was dealt with. A `check` closes nothing.
    """
    found = []
    for name in [node.name for node in await service.every(db) if node.name not in workers]:
        # what the scheduler has given places there is seen from here on
        node = await service.get(db, name, lock=True)
        if node.state is NodeState.LOST:
            continue
        closes = node.mode is NodeMode.ACTIVE
        if closes and not check:
            await service.set_mode(db, name, NodeMode.MAINTENANCE, None)
            log.info("mode", node=name, mode=str(NodeMode.MAINTENANCE), by="site")
        live = await sessions.of_nodes(db, [node.id], HOLDING)
        named = [{"name": each.name, "project": each.project.name, "user": each.user_name} for each in live]
        found.append({"name": name, "closed": closes, "sessions": named})
    return found


async def remove(db: AsyncSession, name: str, caller: Identity) -> None:
    """Delete a node that is lost, or in maintenance and empty; raises ConflictError for any other.

    Its sessions are dealt with as those of a lost node, but nothing is kept for its return. If its agent reports again,
    it comes back as a new node.
    """
    caller.check(Action.NODE_DELETE)
    # What the scheduler has given places there is seen now, and nothing more is given any.
    node = await service.get(db, name, lock=True)
    live = await sessions.of_nodes(db, [node.id], HOLDING)
    if node.state is not NodeState.LOST and (node.mode is not NodeMode.MAINTENANCE or live):
        raise ConflictError(
            f"{name} is {node.state} and {node.mode}, with {len(live)} live sessions",
            where="name",
            hint="drain it first; it can be deleted when it is in maintenance and empty, or lost",
        )
    if node.state is not NodeState.LOST and node.unknown_containers:
        raise ConflictError(
            f"{name} runs {node.unknown_containers} containers of sessions that the database does not know",
            where="name",
            hint=f"end them first: `penstock node end-unknown {name}`",
        )
    await losses.after_removal(db, node)
    await lifecycle.forget_places(db, node.id)
    await service.remove(db, node)
    # whoever may not see nodes is told nothing of those that there are, and of this one nobody knows it any more
    await images.replace_in_errors(db, name, lambda error: rights.without_names(error, [name]))
    log.info("removed", node=name, by=caller.name)


async def unknown(db: AsyncSession, name: str, caller: Identity) -> tuple[AgentAddress, list[str]]:
    """Return an agent, and its containers whose sessions the database does not know, for who may end these."""
    await rights.check(db, name, caller, Action.NODE_CHANGE)
    node = await service.get(db, name)
    if not await service.has_reported(db, name):
        raise ConflictError(f"{name} has not reported yet", where="name", hint="try again in some seconds")
    return agent_of(node), list(node.unknown_ids)


async def end_unknown(engine: Engine, agent: AgentAddress, containers: Sequence[str], caller: Identity) -> None:
    """End containers of a node that are nobody's."""
    for container in containers:
        log.warning("unknown container ended", node=agent.name, container=container, by=caller.name)
        await engine.terminate(agent, container, GRACE_S)
