"""Drains of nodes: trainings move, people are warned, and at its time the rest is ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.control.reconcilers.change import SessionUpdate
from api.control.reconcilers.failures import Failures
from api.control.reconcilers.follow import WATCHED, starts_again
from api.resources.sessions import service as sessions
from api.tables.nodes import Node
from api.tables.sessions import Kind, Session, State
from common.sentence import Moment, Sentence

DRAINING = "draining"


async def due(db: AsyncSession, draining: Sequence[Node], at: datetime, failures: Failures) -> Sequence[SessionUpdate]:
    """Return what the sessions of draining nodes have to be told, or come to."""
    ids = {node.id for node in draining}

    def judge(session: Session) -> SessionUpdate | None:
        values = _after(session, next(node for node in session.nodes if node.id in ids), at)
        is_new = any(getattr(session, name) != value for name, value in values.items())
        return SessionUpdate(session, values) if is_new else None

    return failures.judge(Sentence("to drain its node"), await sessions.of_nodes(db, ids, WATCHED), judge)


async def call_off(db: AsyncSession, node: Node) -> None:
    """Take the warning from the sessions of a node that is not drained any more."""
    for session in await sessions.of_nodes(db, [node.id], [State.RUNNING]):
        if session.cause == DRAINING:
            await sessions.change(db, session, reason="", cause="")


def _after(session: Session, node: Node, at: datetime) -> dict[str, Any]:
    until = node.drain_until or at
    if starts_again(session):
        return _end(State.PENDING, Sentence("{node} is drained; it starts again elsewhere", node=node.name))
    if at < until:
        reason = Sentence("{node} is drained and ends it at {at}; save your work", node=node.name, at=Moment.at(until))
        return {"reason": reason, "cause": DRAINING}
    if session.kind is Kind.SERVICE:
        return _end(State.PENDING, Sentence("{node} was drained; it starts again elsewhere", node=node.name))
    return _end(State.TERMINATED, Sentence("{node} was drained", node=node.name))


def _end(final_state: State, reason: str) -> dict[str, Any]:
    return {"state": State.TERMINATING, "final_state": final_state, "reason": reason, "cause": DRAINING}
