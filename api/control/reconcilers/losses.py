"""Losses of nodes: what becomes of sessions when one is lost, removed, or comes back.

A training starts again elsewhere, and so does whatever did not run yet. An interactive session or a service is marked
and kept, for its container may well go on: whoever uses it decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.control.reconcilers.change import log_change
from api.control.reconcilers.failures import Failures
from api.control.reconcilers.follow import WATCHED, beginning, starts_again, within_its_time
from api.resources.sessions import lifecycle
from api.resources.sessions import service as sessions
from api.tables.nodes import Node, NodeState
from api.tables.sessions import Session, State
from common.protocol import ContainerState, ContainerStatus
from common.sentence import Sentence

LOST_NODE = "lost-node"


async def after_loss(db: AsyncSession, node: Node, after_s: float, failures: Failures) -> None:
    """Apply the policy to the sessions of a node that was just marked as lost."""
    seconds = f"{after_s:g}"
    reason = Sentence("{node} is lost: nothing heard from it for {seconds} s", node=node.name, seconds=seconds)
    for session in await sessions.of_nodes(db, [node.id], WATCHED):
        async with failures.alone(db, session, Sentence("to do what the loss of its node asks for")):
            if starts_again(session):
                await start_again(db, session, Sentence("{why}; it starts again", why=reason))
            elif await sessions.change(db, session, reason=reason, cause=LOST_NODE):
                log_change(session, {"reason": reason})


async def left_over(db: AsyncSession, lost: Sequence[Node]) -> Sequence[Node]:
    """Return lost nodes with sessions that start again and were spared, as somebody else changed them just then."""
    if not lost:
        return ()
    waiting = {
        node.id
        for session in await sessions.of_nodes(db, [node.id for node in lost], WATCHED)
        if starts_again(session)
        for node in session.nodes
    }
    return [node for node in lost if node.id in waiting]


async def after_removal(db: AsyncSession, node: Node) -> None:
    """Apply the policy to the sessions of a node that is taken away: it never comes back as the same one."""
    reason = Sentence("{node} was removed", node=node.name)
    for session in await sessions.of_nodes(db, [node.id], (*WATCHED, State.TERMINATING)):
        again = session.final_state is State.PENDING if session.state is State.TERMINATING else starts_again(session)
        if again:
            await start_again(db, session, Sentence("{why}; it starts again", why=reason), without=node)
        elif _others(session, node):
            final_state = session.final_state or State.FAILED
            await sessions.change(db, session, state=State.TERMINATING, final_state=final_state, reason=reason)
        else:
            planned = session.final_state if session.state is State.TERMINATING else None
            await sessions.end(db, session, state=planned or State.FAILED, reason=reason, cause="")


async def after_return(db: AsyncSession, returned: Collection[Node], failures: Failures) -> None:
    """Take the mark from the sessions of nodes that report again, where all their nodes do."""
    if not returned:
        return
    for session in await sessions.of_nodes(db, [node.id for node in returned], [State.RUNNING]):
        if session.cause == LOST_NODE and all(node.state is not NodeState.LOST for node in session.nodes):
            async with failures.alone(db, session, Sentence("to note that its node is back")):
                await sessions.change(db, session, reason="", cause="")


async def start_again(db: AsyncSession, session: Session, reason: str, *, without: Node | None = None) -> None:
    """Put a session back into the queue; its containers on nodes that still answer are removed first."""
    reachable = [node for node in session.nodes if node is not without and node.state is not NodeState.LOST]
    if reachable:
        values = {"state": State.TERMINATING, "final_state": State.PENDING, "reason": reason, "cause": ""}
        done = await sessions.change(db, session, **values)
    else:
        values = {"state": State.PENDING, "reason": reason}
        done = await sessions.requeue(db, session, reason)
    if done:
        log_change(session, values)


def left_running(session: Session, containers: Sequence[ContainerState]) -> dict[int, ContainerState]:
    """Return the containers of a waiting session's attempt before, by rank, if all of them still run."""
    ids = {session.container_id(rank, attempt=session.attempt - 1): rank for rank in range(session.replicas)}
    found = {ids[item.id]: item for item in containers if item.id in ids and item.status is ContainerStatus.RUNNING}
    return found if session.attempt and len(found) == session.replicas else {}


async def adopt(
    db: AsyncSession, session: Session, node: Node, found: Mapping[int, ContainerState], at: datetime
) -> bool:
    """Let a waiting session have its containers back that still run on a node that came back."""
    started = min((item.started_at for item in found.values() if item.started_at), default=at)
    values: dict[str, Any] = beginning(session, within_its_time(session, started, at))
    adopted = await lifecycle.adopt(db, session, node.id, found, values)
    if adopted:
        told = f"{node.name} came back with it"
        log_change(session, {"state": State.RUNNING, "reason": told})
    return adopted


def _others(session: Session, node: Node) -> bool:
    return any(other is not node and other.state is not NodeState.LOST for other in session.nodes)
