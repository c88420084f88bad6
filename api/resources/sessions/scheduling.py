"""The scheduler's view of sessions, and what it writes: plain columns, for there may be tens of thousands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import Row, bindparam, func, insert, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.database import among
from api.resources.sessions import networks
from api.scheduler.snapshot import Placement
from api.tables.nodes import Node
from api.tables.sessions import ENDED, HOLDING, Container, GpuShareRow, Session, State
from common.gpu.share import GpuShare

CHUNK = 1000
"""So many ids stand in one query at most."""

_ASKED = (
    Session.id,
    Session.revision,
    Session.name,
    Session.project_id,
    Session.user_id,
    Session.access,
    Session.kind,
    Session.state,
    Session.since,
    Session.attempt,
    Session.priority,
    Session.preemptible,
    Session.replicas,
    Session.gpu_milli,
    Session.cpu_milli,
    Session.memory_mib,
    Session.group,
    Session.gpu_models,
    Session.within,
    Session.within_required,
    Session.enforcement,
    Session.held_milli,
    Session.created_at,
    Session.starts_at,
    Session.scheduled_at,
    Session.started_at,
    Session.expires_at,
    Session.reason,
    Session.cause,
    Session.position,
)

Asked = Row[Any]
"""What a session asks for, and how far it is: the columns above."""
Token = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PendingReasonUpdate:
    """The new pending reason of a session, for people and for programs, and its place in the queue."""

    session_id: UUID
    revision: int
    reason: str
    cause: str
    position: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the containers of a session shall run, and the revision of it for which that was decided."""

    revision: int
    placements: Sequence[Placement]


async def change_token(db: AsyncSession, at: datetime) -> Token | None:
    """Return what changes whenever a session does; None where nothing waits that could start."""
    due = await db.scalar(select(func.count()).where(*_due(at)))
    if not due:
        return None
    sums = select(Session.state, func.count(), func.sum(Session.revision), func.max(Session.since))
    rows = await db.execute(sums.where(Session.state.not_in(ENDED)).group_by(Session.state).order_by(Session.state))
    return (due, *(tuple(row) for row in rows))


async def pending(db: AsyncSession, at: datetime) -> list[Asked]:
    """Return the sessions that wait and whose start has come."""
    query = select(*_ASKED).where(*_due(at)).order_by(Session.created_at, Session.id)
    return list(await db.execute(query))


async def holding(db: AsyncSession) -> dict[UUID, int]:
    """Return the revisions of the sessions that hold places, by their ids."""
    query = select(Session.id, Session.revision).where(Session.state.in_(HOLDING))
    return {row.id: row.revision for row in await db.execute(query)}


async def asked(db: AsyncSession, ids: Collection[UUID]) -> list[Asked]:
    """Return what some sessions ask for."""
    found: list[Asked] = []
    for part in _chunks(ids):
        found += await db.execute(
            select(*_ASKED).where(among(Session.id, part)).order_by(Session.created_at, Session.id)
        )
    return found


async def places(db: AsyncSession, ids: Collection[UUID]) -> dict[UUID, tuple[Placement, ...]]:
    """Return where the containers of some sessions are, in the order of their ranks."""
    found: defaultdict[UUID, list[Placement]] = defaultdict(list)
    for part in _chunks(ids):
        held: defaultdict[tuple[UUID, int], list[GpuShare]] = defaultdict(list)
        key = (GpuShareRow.session_id, GpuShareRow.rank, GpuShareRow.index)
        shares = select(*key, GpuShareRow.uuid, GpuShareRow.milli).where(among(GpuShareRow.session_id, part))
        for id_, rank, index, uuid, milli in await db.execute(shares.order_by(*key)):
            held[id_, rank].append(GpuShare(uuid, index, milli))
        containers = select(Container.session_id, Container.rank, Node.name).join(Node, Node.id == Container.node_id)
        for id_, rank, node in await db.execute(
            containers.where(among(Container.session_id, part)).order_by(Container.session_id, Container.rank)
        ):
            found[id_].append(Placement(node, tuple(held[id_, rank])))
    return {id_: tuple(placements) for id_, placements in found.items()}


async def lock_nodes(db: AsyncSession, ids: Collection[UUID]) -> set[UUID]:
    """Return which of some nodes there are; none of these is deleted until the transaction ends."""
    found: set[UUID] = set()
    for part in _chunks(ids):
        query = select(Node.id).where(Node.id.in_(part)).order_by(Node.id)
        found |= set(await db.scalars(query.with_for_update(read=True, key_share=True)))
    return found


async def start(
    db: AsyncSession,
    placed: Mapping[UUID, Placed],
    node_ids: Mapping[str, UUID],
    numbers: Mapping[UUID, int] = MappingProxyType({}),
) -> int:
    """Give waiting sessions their places; returns how many got them. One that has changed since is left alone.

    On slices of GPUs they hold more than they ask for. `numbers` are those of the networks between the containers of
    sessions that have several.
    """
    started: list[UUID] = []
    moment = now()
    for part in _chunks(placed):
        as_read = tuple_(Session.id, Session.revision).in_([(id_, placed[id_].revision) for id_ in part])
        query = update(Session).where(as_read, Session.state == State.PENDING)
        query = query.returning(Session.id, Session.held_milli)
        values = {"state": State.SCHEDULED, "since": moment, "scheduled_at": moment, "reason": "", "cause": ""}
        query = query.values(**values, held_milli=Session.gpu_milli * Session.replicas)
        query = query.values(position=0, revision=Session.revision + 1)
        for id_, asked_milli in await db.execute(query, execution_options={"synchronize_session": False}):
            started.append(id_)
            taken_milli = sum(share.milli for place in placed[id_].placements for share in place.shares)
            if taken_milli != asked_milli:
                exactly = update(Session).where(Session.id == id_).values(held_milli=taken_milli)
                await db.execute(exactly, execution_options={"synchronize_session": False})
    if started:
        places = [(id_, rank, place) for id_ in started for rank, place in enumerate(placed[id_].placements)]
        await db.execute(
            insert(Container),
            [{"session_id": id_, "rank": rank, "node_id": node_ids[place.node]} for id_, rank, place in places],
        )
        shares = [
            {"session_id": id_, "rank": rank, "index": share.index, "uuid": share.uuid, "milli": share.milli}
            for id_, rank, place in places
            for share in place.shares
        ]
        if shares:
            await db.execute(insert(GpuShareRow), shares)
        await networks.give(db, {id_: numbers[id_] for id_ in started if id_ in numbers})
    return len(started)


async def note_pending_reasons(db: AsyncSession, updates: Sequence[PendingReasonUpdate]) -> None:
    """Write why sessions wait; one that has changed since it was read is left alone.

    What is told to people changes nothing of the session: its revision stays, and nothing is decided anew for it.
    """
    if not updates:
        return
    query = (
        update(Session)
        .where(Session.id == bindparam("known"), Session.revision == bindparam("read"))
        .where(Session.state == State.PENDING)
        .values(
            reason=bindparam("reason"),
            cause=bindparam("cause"),
            position=bindparam("position"),
        )
    )
    rows = [
        {"known": each.session_id, "read": each.revision, "reason": each.reason}
        | {"cause": each.cause, "position": each.position}
        for each in updates
    ]
    await (await db.connection()).execute(query, rows)


def _due(at: datetime) -> tuple[Any, ...]:
    return Session.state == State.PENDING, or_(Session.starts_at.is_(None), Session.starts_at <= at)


def _chunks(ids: Iterable[UUID]) -> Iterator[list[UUID]]:
    ordered = sorted(ids)
    return (ordered[start : start + CHUNK] for start in range(0, len(ordered), CHUNK))
