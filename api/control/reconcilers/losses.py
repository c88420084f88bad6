"""Losses of nodes: what becomes of sessions when one is lost, removed, or comes back.

A training starts again elsewhere, and so does whatever did not run yet. An interactive session or a service is marked
and kept, for its container may well go on: whoever uses it decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
MAX_ATTEMPT = 2**31 - 1


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


@dataclass(frozen=True)
class LeftRunning:
    """The containers of an attempt of a waiting session on a node, by rank: all that it had."""

    session: Session
    node: Node
    attempt: int
    containers: Mapping[int, ContainerState]


def left_running(session: Session, node: Node, containers: Sequence[ContainerState]) -> LeftRunning | None:
    """Return the last attempt of a waiting session that still runs, if all its containers do.

    It is the one before, or after a restore a later one of which the database does not know. Then the network of a gang
    is unknown, too, and may be another one's by now.
    """
    last = session.attempt - 1 if session.replicas > 1 else MAX_ATTEMPT
    running = {item.id: item for item in containers if item.status is ContainerStatus.RUNNING}
    attempts = {_attempt_of(id_) for id_ in running if id_.startswith(f"session-{session.id}-")}
    for attempt in sorted(attempts, reverse=True):
        ids = {rank: session.container_id(rank, attempt=attempt) for rank in range(session.replicas)}
        if session.attempt - 1 <= attempt <= last and running.keys() >= set(ids.values()):
            return LeftRunning(session, node, attempt, {rank: running[id_] for rank, id_ in ids.items()})
    return None


def _attempt_of(container_id: str) -> int:
    attempt = container_id.split("-")[-2]
    return int(attempt) if attempt.isdecimal() else -1


async def adopt(db: AsyncSession, left: LeftRunning, at: datetime) -> bool:
    """Let a waiting session have its containers back that still run on a node that came back."""
    session, node, found = left.session, left.node, left.containers
    started = min((item.started_at for item in found.values() if item.started_at), default=at)
    values: dict[str, Any] = beginning(session, within_its_time(session, started, at))
    adopted = await lifecycle.adopt(db, session, node.id, found, attempt=left.attempt, values=values)
    if adopted:
        told = f"{node.name} came back with it"
        log_change(session, {"state": State.RUNNING, "reason": told})
    return adopted


def _others(session: Session, node: Node) -> bool:
    return any(other is not node and other.state is not NodeState.LOST for other in session.nodes)
