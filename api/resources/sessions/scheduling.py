"""The scheduler's view of sessions, and what it writes: plain columns, for there may be tens of thousands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Row, Text, and_, cast, func, insert, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.database import among, rows_of
from api.resources.sessions import elastic, networks
from api.scheduler.snapshot import Placement
from api.tables.nodes import Node
from api.tables.sessions import HOLDING, HOLDS, Container, GpuShareRow, Session, State
from common.gpu.share import GpuShare
from common.sentence import parts_of

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
    Session.min_replicas,
    Session.max_replicas,
    Session.replicas_at,
    Session.reach,
    Session.gpu_milli,
    Session.cpu_milli,
    Session.memory_mib,
    Session.group,
    Session.gpu_models,
    Session.within,
    Session.within_required,
    Session.p2p,
    Session.rdma,
    Session.enforcement,
    Session.mounts,
    Session.protocol,
    Session.held_milli,
    Session.created_at,
    Session.starts_at,
    Session.scheduled_at,
    Session.started_at,
    Session.limit_s,
    Session.expires_at,
    Session.reason,
    Session.cause,
    Session.position,
    Session.reserved_on,
    Session.moves,
    Session.moved_at,
    Session.interrupted_at,
)

Asked = Row[Any]
"""What a session asks for, and how far it is: the columns above."""


@dataclass(frozen=True, slots=True)
class PendingReasonUpdate:
    """The new pending reason of a session, for people and for programs, and its place in the queue.

    `reserved_on` names the nodes on which places are kept for it.
    """

    session_id: UUID
    revision: int
    reason: str
    cause: str
    position: int
    reserved_on: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the containers of a session shall run, and the revision of it for which that was decided.

    `reach` are the nodes where an elastic one may get more of them.
    """

    revision: int
    placements: Sequence[Placement]
    reach: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """How many sessions wait that could start, how many could have more containers, and the first transaction whose
    changes may not be seen yet.
    """

    waiting: int
    growing: int
    horizon: int


async def look(db: AsyncSession, at: datetime) -> Look:
    """Return what there is to do; what is changed later is of a transaction from the horizon on."""
    horizon = cast(cast(func.pg_snapshot_xmin(func.pg_current_snapshot()), Text), BigInteger)
    growing = select(func.count(Session.id)).where(elastic.IS_GROWING).scalar_subquery()
    waiting, more, first = (await db.execute(select(func.count(Session.id), growing, horizon).where(*_due(at)))).one()
    return Look(waiting, more, first)


async def changed(db: AsyncSession, horizon: int) -> dict[UUID, tuple[int, bool]]:
    """Return the sessions that were changed from a horizon on: their revisions, and whether they hold places.

    Rows of a restored database may be of transactions that are yet to come here, and are left out.
    """
    ahead = cast(cast(func.pg_snapshot_xmax(func.pg_current_snapshot()), Text), BigInteger)
    query = select(Session.id, Session.revision, Session.state.in_(HOLDING).label("holds"))
    rows = await db.execute(query.where(Session.changed_in >= horizon, Session.changed_in < ahead))
    return {row.id: (row.revision, row.holds) for row in rows}


async def pending(db: AsyncSession, at: datetime) -> list[Asked]:
    """Return the sessions that wait and may start: their time has come, and that of their next try."""
    query = select(*_ASKED).where(*_due(at)).order_by(Session.created_at, Session.id)
    return list(await db.execute(query))


async def holding(db: AsyncSession) -> dict[UUID, int]:
    """Return the revisions of the sessions that hold places, by their ids."""
    query = select(Session.id, Session.revision).where(HOLDS)
    return {row.id: row.revision for row in await db.execute(query)}


async def asked(db: AsyncSession, ids: Collection[UUID]) -> list[Asked]:
    """Return what some sessions ask for."""
    found: list[Asked] = []
    for part in _chunks(ids):
        found += await db.execute(
            select(*_ASKED).where(among(Session.id, part)).order_by(Session.created_at, Session.id)
        )
    return found


async def unchanged(db: AsyncSession, read: Sequence[Asked]) -> list[Asked]:
    """Return those of some sessions that nobody has changed since they were read."""
    query = select(Session.id, Session.revision).where(among(Session.id, [row.id for row in read]))
    revisions = {row.id: row.revision for row in await db.execute(query)}
    return [row for row in read if revisions.get(row.id) == row.revision]


async def places(db: AsyncSession, ids: Collection[UUID]) -> dict[UUID, tuple[Placement, ...]]:
    """Return where the containers of some sessions are, in the order of their ranks."""
    found: defaultdict[UUID, list[Placement]] = defaultdict(list)
    shares = (GpuShareRow.uuid, GpuShareRow.index, GpuShareRow.milli)
    query = select(Container.session_id, Container.rank, Node.name, *shares).join(Node, Node.id == Container.node_id)
    held = and_(GpuShareRow.session_id == Container.session_id, GpuShareRow.rank == Container.rank)
    query = query.outerjoin(GpuShareRow, held)
    query = query.order_by(Container.session_id, Container.rank, GpuShareRow.index)
    for part in _chunks(ids):
        of_container = groupby(await db.execute(query.where(among(Container.session_id, part))), lambda row: row[:3])
        for (id_, _, node), rows in of_container:
            held_there = [GpuShare(uuid, index, milli) for *_, uuid, index, milli in rows if uuid is not None]
            found[id_].append(Placement(node, tuple(held_there)))
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
        taken = [sum(share.milli for place in placed[id_].placements for share in place.shares) for id_ in part]
        given = rows_of(
            {
                "id": (Session.id.type, part),
                "read": (Session.revision.type, [placed[id_].revision for id_ in part]),
                "milli": (Session.held_milli.type, taken),
            }
        )
        as_read = and_(Session.id == given.c.id, Session.revision == given.c.read, Session.state == State.PENDING)
        values: dict[str, Any] = {"state": State.SCHEDULED, "since": moment, "scheduled_at": moment}
        values |= {"reason": "", "reason_parts": {}, "cause": ""}
        query = update(Session).where(as_read).values(**values, held_milli=given.c.milli)
        query = query.values(position=0, reserved_on=[], revision=Session.revision + 1).returning(Session.id)
        started += await db.scalars(query, execution_options={"synchronize_session": False})
    for part in _chunks(started):
        await _write_places(db, {id_: placed[id_].placements for id_ in part}, node_ids)
    await networks.give(db, {id_: numbers[id_] for id_ in started if id_ in numbers})
    for id_ in started:
        if reach := placed[id_].reach:
            await networks.extend(db, id_, [node_ids[name] for name in reach if name in node_ids])
    return len(started)


async def _write_places(
    db: AsyncSession, placed: Mapping[UUID, Sequence[Placement]], node_ids: Mapping[str, UUID]
) -> None:
    places = [(id_, rank, place) for id_, found in placed.items() for rank, place in enumerate(found)]
    shares = [(id_, rank, share) for id_, rank, place in places for share in place.shares]
    containers: dict[str, Sequence[Any]] = {
        "session_id": [id_ for id_, _, _ in places],
        "rank": [rank for _, rank, _ in places],
        "node_id": [node_ids[place.node] for _, _, place in places],
    }
    await _insert(db, Container, containers, error="", ports={})
    if shares:
        held: dict[str, Sequence[Any]] = {
            "session_id": [id_ for id_, _, _ in shares],
            "rank": [rank for _, rank, _ in shares],
            "index": [share.index for _, _, share in shares],
            "uuid": [share.uuid for _, _, share in shares],
            "milli": [share.milli for _, _, share in shares],
        }
        await _insert(db, GpuShareRow, held)


async def _insert(
    db: AsyncSession, table: type[Container | GpuShareRow], columns: Mapping[str, Sequence[Any]], **same: Any
) -> None:
    """Insert rows, which are given by columns, with what is the same for all."""
    given = rows_of({name: (getattr(table, name).type, values) for name, values in columns.items()})
    fixed = {name: literal(value, getattr(table, name).type) for name, value in same.items()}
    await db.execute(insert(table).from_select([*columns, *fixed], select(*given.c, *fixed.values())))


async def note_pending_reasons(db: AsyncSession, updates: Sequence[PendingReasonUpdate]) -> None:
    """Write why sessions wait; one that has changed since it was read is left alone.

    What is told to people changes nothing of the session: its revision stays, and nothing is decided anew for it.
    """
    if not updates:
        return
    columns: dict[str, tuple[Any, list[Any]]] = {
        "id": (Session.id.type, [each.session_id for each in updates]),
        "read": (Session.revision.type, [each.revision for each in updates]),
        "reason": (Session.reason.type, [each.reason for each in updates]),
        "parts": (Session.reason_parts.type, [parts_of(each.reason) for each in updates]),
        "cause": (Session.cause.type, [each.cause for each in updates]),
        "position": (Session.position.type, [each.position for each in updates]),
        "reserved_on": (Session.reserved_on.type, [list(each.reserved_on) for each in updates]),
    }
    given = rows_of(columns)
    as_read = and_(Session.id == given.c.id, Session.revision == given.c.read, Session.state == State.PENDING)
    query = update(Session).where(as_read)
    said = {"reason": given.c.reason, "reason_parts": given.c.parts, "cause": given.c.cause}
    query = query.values(**said, position=given.c.position, reserved_on=given.c.reserved_on)
    await db.execute(query, execution_options={"synchronize_session": False})


def _due(at: datetime) -> tuple[Any, ...]:
    moments = Session.starts_at, Session.tries_at
    return Session.state == State.PENDING, *(or_(moment.is_(None), moment <= at) for moment in moments)


def _chunks(ids: Iterable[UUID]) -> Iterator[list[UUID]]:
    ordered = sorted(ids)
    return (ordered[start : start + CHUNK] for start in range(0, len(ordered), CHUNK))
