"""Lifecycle of sessions: the queries and changes that reconcilers need, and no user."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, delete, distinct, exists, func, not_, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import among
from api.resources.nodes.repository import HAS_REPORTED
from api.resources.sessions import elastic, networks, repository, service
from api.tables.nodes import Node
from api.tables.projects import Project
from api.tables.sessions import BEFORE_START, ENDED, HOLDS, Container, GpuShareRow, Session, State
from common.gpu.kinds import Enforcement
from common.protocol import ContainerState

IN_PREPARATION = (State.SCHEDULED, State.PREPARING)


_UNASKED = exists().where(Container.session_id == Session.id, Container.status.is_(None))
_ON_UNHEARD = exists().where(Container.session_id == Session.id, Container.node_id == Node.id, not_(HAS_REPORTED))
IS_WAITING = Session.state == State.PENDING
IS_UNSTARTED = Session.state.in_(IN_PREPARATION)
IS_BEFORE_START = Session.state.in_(BEFORE_START)
IS_IN_OPERATION = or_(
    Session.state.in_((State.SCHEDULED, State.TERMINATING)),
    and_(Session.state == State.PREPARING, _UNASKED),
    and_(Session.state == State.RUNNING, Session.resize_milli <= Session.gpu_milli),
    elastic.IS_CHANGING,
)
"""Agents are to be called: there are containers to launch, to remove, or to give new shares."""


async def in_operation(db: AsyncSession) -> dict[UUID, State]:
    """Return the sessions for which agents are to be called, the oldest first.

    What is to be launched, or to have another share, waits until it is known what all its nodes run.
    """
    query = select(Session.id, Session.state).where(
        IS_IN_OPERATION, or_(Session.state == State.TERMINATING, not_(_ON_UNHEARD))
    )
    return {row.id: row.state for row in await db.execute(query.order_by(Session.created_at, Session.id))}


async def unstarted(db: AsyncSession) -> dict[UUID, datetime]:
    """Return the sessions that have their places and do not run, with the moments of their last steps forward."""
    rows = await db.execute(select(Session.id, Session.since).where(IS_UNSTARTED))
    return {row.id: row.since for row in rows}


@dataclass(frozen=True)
class OwningProject:
    """A project as far as rights go."""

    id: UUID
    domain: str | None


async def owners_before_start(db: AsyncSession) -> list[tuple[UUID, OwningProject]]:
    """Return who has sessions that do not run yet, and in which projects."""
    query = select(Session.user_id, Project.id, Project.domain).join(Project, Project.id == Session.project_id)
    rows = await db.execute(query.where(IS_BEFORE_START, Session.user_id.is_not(None)).distinct())
    return [(user_id, OwningProject(id_, domain)) for user_id, id_, domain in rows if user_id]


async def before_start_of(db: AsyncSession, owners: Collection[tuple[UUID, UUID]]) -> Sequence[Session]:
    """Return the sessions of users in projects that do not run yet."""
    query = select(Session).where(tuple_(Session.user_id, Session.project_id).in_(owners))
    query = query.where(IS_BEFORE_START)
    return (await db.scalars(query.order_by(Session.created_at, Session.id))).all()


async def before_start_of_users(db: AsyncSession, user_ids: Collection[UUID]) -> Sequence[Session]:
    """Return the sessions of users that do not run yet."""
    query = select(Session).where(among(Session.user_id, user_ids), IS_BEFORE_START)
    return (await db.scalars(query.order_by(Session.created_at, Session.id))).all()


def is_timed(before: datetime) -> ColumnElement[bool]:
    """Return the condition that the time of a running session ends before a moment, or that it was told so."""
    return and_(Session.state == State.RUNNING, or_(Session.expires_at <= before, Session.warned_at.is_not(None)))


async def timed(db: AsyncSession, before: datetime) -> Sequence[Session]:
    """Return the running sessions whose time ends before a moment, and those that were told that it does."""
    query = select(Session).where(is_timed(before))
    return (await db.scalars(query.order_by(Session.created_at, Session.id))).all()


async def of_projects(db: AsyncSession, ids: Collection[UUID], states: Collection[State]) -> Sequence[Session]:
    """Return the sessions of projects in any of some states."""
    query = select(Session).where(Session.project_id.in_(ids), Session.state.in_(states))
    return (await db.scalars(query.order_by(Session.created_at, Session.id))).all()


async def used_by_gpu(db: AsyncSession, node_ids: Collection[UUID]) -> dict[tuple[UUID, str], int]:
    """Return the milli-GPU that sessions hold on some nodes, by node and GPU."""
    query = select(Container.node_id, GpuShareRow.uuid, func.sum(GpuShareRow.milli)).join(Container.gpu_shares)
    query = query.join(Session, Session.id == Container.session_id)
    query = query.where(HOLDS, among(Container.node_id, node_ids))
    rows = await db.execute(query.group_by(Container.node_id, GpuShareRow.uuid))
    return {(node_id, uuid): int(milli) for node_id, uuid, milli in rows}


async def count_by_node(db: AsyncSession, node_ids: Collection[UUID]) -> dict[UUID, int]:
    """Return how many sessions hold places on each of some nodes."""
    query = select(Container.node_id, func.count(distinct(Session.id)).label("live"))
    query = query.join(Session, Session.id == Container.session_id)
    query = query.where(HOLDS, among(Container.node_id, node_ids)).group_by(Container.node_id)
    return {row.node_id: row.live for row in await db.execute(query)}


async def move(db: AsyncSession, step: timedelta) -> None:
    """Move the times of sessions that hold places, as the clock was set by so much."""
    times = (
        Session.since,
        Session.scheduled_at,
        Session.started_at,
        Session.expires_at,
        Session.warned_at,
        Session.moved_at,
    )
    query = update(Session).where(HOLDS).values({time: time + step for time in times})
    await db.execute(query.values(revision=Session.revision + 1), execution_options={"synchronize_session": False})


async def forget_ended(db: AsyncSession, before: datetime, limit: int) -> int:
    """Delete so many sessions that ended before a moment, with all that is known of them; returns how many."""
    old = select(Session.id).where(Session.finished_at < before, Session.state.in_(ENDED))
    old = old.order_by(Session.finished_at).limit(limit).with_for_update(skip_locked=True)
    return len((await db.scalars(delete(Session).where(Session.id.in_(old)).returning(Session.id))).all())


async def forget_places(db: AsyncSession, node_id: UUID) -> None:
    """Take away the places on a node that is deleted, those of ended sessions too."""
    await db.execute(delete(Container).where(Container.node_id == node_id))


async def adopt(
    db: AsyncSession,
    session: Session,
    node_id: UUID,
    found: Mapping[int, ContainerState],
    *,
    attempt: int,
    values: dict[str, Any],
) -> bool:
    """Give a waiting session the containers of an attempt back, which still run on a node."""
    held_milli = sum(share.milli for state in found.values() for share in state.gpus)
    whole = any(state.enforcement is Enforcement.MIG for state in found.values())
    shares = {"held_milli": held_milli, "gpu_milli": session.gpu_milli if whole else held_milli // session.replicas}
    network = await networks.number_of(db, session.id, attempt)
    told = {"interrupted": "", "interrupted_at": None}
    changed = await service.change(
        db, session, **values, **shares, **told, attempt=attempt, network=network, position=0
    )
    if changed:
        for rank, state in found.items():
            repository.add(db, _container(session.id, rank, node_id, state))
        await db.flush()
    return changed


def _container(session_id: UUID, rank: int, node_id: UUID, state: ContainerState) -> Container:
    return Container(
        session_id=session_id,
        rank=rank,
        node_id=node_id,
        status=state.status,
        started_at=state.started_at,
        ports={str(port): at for port, at in state.ports.items()},
        enforcement=state.enforcement,
        warning=state.warning,
        nccl=state.nccl.model_dump() if state.nccl else {},
        gpu_shares=[
            GpuShareRow(session_id=session_id, rank=rank, index=share.index, uuid=share.uuid, milli=share.milli)
            for share in state.gpus
        ],
    )
