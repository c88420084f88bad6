"""What heartbeats say becomes what the database says: nodes, and the states of the sessions on them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import Database, now
from api.engine.base import Target
from api.nodes import service as nodes
from api.nodes.heartbeats import Heartbeats, Report
from api.nodes.models import Node
from api.sessions import service as sessions
from api.sessions.models import ENDED, Session, State
from api.sessions.relay import target_of
from appliance.agent.protocol import ContainerState, ContainerStatus

log = structlog.get_logger()

WATCHED = (State.SCHEDULED, State.PREPARING, State.RUNNING)
MISSING_LIMIT = 2
"""So many heartbeats in a row must lack a running session's container: one may have been written before it started."""


@dataclass(frozen=True)
class Ghost:
    """A container that runs somewhere and that no session wants."""

    target: Target
    container_id: str
    session_id: str


class Observer:
    """Applies heartbeats in batches."""

    def __init__(self, database: Database, heartbeats: Heartbeats) -> None:
        """Start with nothing missing."""
        self._database = database
        self._heartbeats = heartbeats
        self._missing: dict[UUID, int] = {}

    async def apply(self) -> list[Ghost]:
        """Write what has come in since the last call; returns the containers that nobody wants."""
        reports = self._heartbeats.take()
        if not reports:
            return []
        try:
            return await self._write(reports)
        except (OperationalError, InterfaceError, asyncio.CancelledError):
            self._heartbeats.give_back(reports)
            raise
        except DBAPIError:
            return await self._write_singly(reports)

    async def _write(self, reports: Sequence[Report]) -> list[Ghost]:
        async with self._database.transaction() as db:
            return await self._apply(db, reports)

    async def _write_singly(self, reports: Sequence[Report]) -> list[Ghost]:
        """Leave out the heartbeat that the database cannot take, so that one agent does not silence all others."""
        ghosts: list[Ghost] = []
        for report in reports:
            try:
                ghosts += await self._write([report])
            except DBAPIError as error:
                log.warning("heartbeat refused", node=report.heartbeat.name, reason=str(error.orig))
        return ghosts

    async def _apply(self, db: AsyncSession, reports: Sequence[Report]) -> list[Ghost]:
        known = await nodes.record(db, reports)
        ghosts: list[Ghost] = []
        live = await sessions.of_nodes(db, {node.id for node in known.values()}, WATCHED)
        for report in reports:
            node = known[report.heartbeat.name]
            containers = {container.id: container for container in report.heartbeat.containers}
            for session in live:
                ranks = [container.rank for container in session.containers if container.node_id == node.id]
                if ranks:
                    found = {rank: containers.get(session.container_id(rank)) for rank in ranks}
                    await self._follow(db, session, found, report)
            ghosts += await _ghosts(db, node, report)
        return ghosts

    async def _follow(
        self, db: AsyncSession, session: Session, found: Mapping[int, ContainerState | None], report: Report
    ) -> None:
        seen = {rank: container for rank, container in found.items() if container is not None}
        if len(seen) == len(found):
            self._missing.pop(session.id, None)
        values, noted = after(session, seen)
        if len(seen) < len(found):
            values = values or self._after_missing(session, report)
        if values and not await sessions.change(db, session, **values):
            return
        await sessions.note_containers(db, session, noted)
        if values:
            await db.refresh(session)
            log.info("session", session=session.name, project=session.project.name, **_short(values))

    def _after_missing(self, session: Session, report: Report) -> dict[str, Any]:
        started = session.started_at
        if session.state is not State.RUNNING or started is None or report.received_at <= started:
            return {}
        count = self._missing[session.id] = self._missing.get(session.id, 0) + 1
        if count < MISSING_LIMIT:
            return {}
        del self._missing[session.id]
        reason = f"its container is gone from {report.heartbeat.name}"
        return {"state": State.TERMINATING, "ending": State.FAILED, "reason": reason}


def after(session: Session, seen: Mapping[int, ContainerState]) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Return what changes of a session and of its containers when some of these are seen in a state, by rank."""
    if session.state not in WATCHED:
        return {}, {}
    noted = {rank: _changes(session, rank, container) for rank, container in seen.items()}
    statuses = {container.rank: container.status for container in session.containers}
    statuses |= {rank: values["status"] for rank, values in noted.items() if "status" in values}
    for rank, container in seen.items():
        if container.status is ContainerStatus.FAILED or container.exit_code:
            return _after_failure(session, rank, container), noted
    if all(status is ContainerStatus.EXITED for status in statuses.values()):
        last = seen[max(seen)]
        started = session.started_at or last.started_at
        ended = {"state": State.TERMINATING, "ending": State.TERMINATED, "reason": "", "exit_code": 0}
        return {**ended, "started_at": started}, noted
    return _after_progress(session, statuses, seen), noted


def _changes(session: Session, rank: int, container: ContainerState) -> dict[str, Any]:
    """Return what is new of one container; what would set it back was written before, and comes late."""
    known = next(item for item in session.containers if item.rank == rank)
    late = known.status is ContainerStatus.EXITED or (
        known.status is ContainerStatus.RUNNING
        and container.status in (ContainerStatus.PULLING, ContainerStatus.CREATING)
    )
    ports = {str(port): at for port, at in container.ports.items()}
    seen = {
        "status": container.status,
        "error": container.error,
        "exit_code": container.exit_code,
        "started_at": container.started_at,
        "ports": ports,
    }
    return {} if late else {name: value for name, value in seen.items() if getattr(known, name) != value}


def _after_progress(
    session: Session, statuses: Mapping[int, ContainerStatus | None], seen: Mapping[int, ContainerState]
) -> dict[str, Any]:
    begun = (ContainerStatus.RUNNING, ContainerStatus.EXITED)
    running = sum(status in begun for status in statuses.values())
    if running == len(statuses):
        if session.state is State.RUNNING and not session.reason:
            return {}
        times = [container.started_at for container in seen.values() if container.started_at]
        return {"state": State.RUNNING, "reason": "", "started_at": session.started_at or max(times, default=now())}
    # A container starts once: what would set a running session back was written before it ran, and comes late.
    if session.state is State.RUNNING:
        return {}
    pulls = ContainerStatus.PULLING in statuses.values()
    reason = "pulls the image" if pulls else "starts the container"
    if len(statuses) > 1:
        reason = f"{'pulls the image' if pulls else 'starts the containers'}; {running} of {len(statuses)} run"
    if session.state is State.PREPARING and session.reason == reason:
        return {}
    return {"state": State.PREPARING, "reason": reason}


def _after_failure(session: Session, rank: int, container: ContainerState) -> dict[str, Any]:
    exited = container.status is ContainerStatus.EXITED
    reason = f"its command ended with exit code {container.exit_code}" if exited else "its container did not start"
    which = f"container {rank} of {session.size}: " if session.size > 1 else ""
    return {
        "state": State.TERMINATING,
        "ending": State.FAILED,
        "reason": which + (container.error or reason),
        "exit_code": container.exit_code,
        "started_at": session.started_at or container.started_at,
    }


async def _ghosts(db: AsyncSession, node: Node, report: Report) -> list[Ghost]:
    wanted = {id_ for id_ in map(_uuid, (item.session_id for item in report.heartbeat.containers)) if id_}
    if not report.heartbeat.containers:
        return []
    known = await sessions.by_ids(db, wanted)
    ghosts = []
    for container in report.heartbeat.containers:
        id_ = _uuid(container.session_id)
        session = known.get(id_) if id_ else None
        if session is None or session.state in (*ENDED, State.PENDING) or container.id not in _wanted_on(session, node):
            ghosts.append(Ghost(target_of(node), container.id, container.session_id))
    return ghosts


def _wanted_on(session: Session, node: Node) -> set[str]:
    return {session.container_id(item.rank) for item in session.containers if item.node_id == node.id}


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _short(values: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) for name, value in values.items() if name in {"state", "ending", "reason", "exit_code"}}
