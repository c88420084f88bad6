"""The scheduler's loop: reads a snapshot from the database, lets it be decided, and writes the decision back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import Database
from api.nodes import service as nodes
from api.nodes.models import Node
from api.nodes.models import NodeState as Readiness
from api.projects import service as projects
from api.scheduler.before_decide import decide
from api.scheduler.before_snapshot import Decision, GpuState, NodeState, ProjectState, Snapshot, Waiting
from api.sessions import service as sessions
from api.sessions.models import HOLDING, Container, Grant, Session, State

log = structlog.get_logger()


async def schedule(database: Database) -> int:
    """Serve the queue once; returns how many sessions got a place."""
    async with database.reading() as db:
        pending = await sessions.in_states(db, [State.PENDING])
        if not pending:
            return 0
        ready = [node for node in await nodes.every(db) if node.state is Readiness.READY]
        snapshot = await _snapshot(db, pending, ready)
    decision = decide(snapshot)
    return await _apply(database, decision, pending, {node.name: node.id for node in ready})


async def _snapshot(db: AsyncSession, pending: Sequence[Session], ready: Sequence[Node]) -> Snapshot:
    used = await sessions.used_by_gpu(db)
    held = await sessions.used_by_project(db)
    placed = Counter(
        container.node_id for session in await sessions.in_states(db, HOLDING) for container in session.containers
    )
    return Snapshot(
        nodes=tuple(
            NodeState(
                node.name,
                tuple(GpuState(gpu.index, gpu.uuid, used.get((node.id, gpu.uuid), 0)) for gpu in node.gpus),
                placed[node.id],
            )
            for node in ready
        ),
        projects=tuple(
            ProjectState(project.name, project.quota_milli, held.get(project.id, 0))
            for project in await projects.every(db)
        ),
        queue=tuple(
            Waiting(str(session.id), session.project.name, session.gpu_milli, session.created_at) for session in pending
        ),
    )


async def _apply(database: Database, decision: Decision, pending: Sequence[Session], node_ids: dict[str, UUID]) -> int:
    placed = 0
    changed = [item for item in pending if decision.reasons.get(str(item.id)) != item.reason]
    if not changed:
        return 0
    async with database.transaction() as db:
        for session in changed:
            placement = decision.placements.get(str(session.id))
            if placement is None:
                await sessions.change(db, session, reason=decision.reasons[str(session.id)])
                continue
            container = Container(
                session_id=session.id,
                rank=0,
                node_id=node_ids[placement.node],
                grants=[
                    Grant(session_id=session.id, rank=0, index=share.index, uuid=share.uuid, milli=share.milli)
                    for share in placement.shares
                ],
            )
            if await sessions.schedule(db, session, [container]):
                log.info("scheduled", session=session.name, project=session.project.name, node=placement.node)
                placed += 1
    return placed
