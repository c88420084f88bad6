"""Elastic sessions: containers that are added and given up while the others run.

The scheduler decides (`grow`, `give_up`), the leader's operations launch and remove. What a container holds is free
when it is gone (`forget`). The containers that a session started with stay together, and each keeps its rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import and_, delete, exists, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.database import among, rows_of
from api.resources.accounting import service as accounting
from api.resources.sessions import changes, repository, service
from api.resources.sessions.changes import Change, Read
from api.resources.sessions.schemas import SessionRequest
from api.scheduler.snapshot import Placement
from api.settings import Launching, Settings
from api.tables.sessions import Container, GpuShareRow, Session, State
from common.errors import InputError
from common.protocol import ContainerStatus
from common.sentence import Moment, Sentence, parts_of

REST = timedelta(seconds=60)
"""So long a session keeps its containers before it gets more: programs begin anew at each change."""

_CHANGES = exists().where(Container.session_id == Session.id, or_(Container.leaving, Container.status.is_(None)))
IS_CHANGING = and_(Session.state == State.RUNNING, Session.max_replicas > 0, _CHANGES)
"""Containers of it are to be launched or removed while others run."""
IS_GROWING = and_(Session.state == State.RUNNING, Session.replicas < Session.max_replicas)
"""It may have more containers than it has."""


@dataclass(frozen=True, slots=True)
class Members:
    """The containers of an elastic session: their ranks, those that are being given up, and whether all run."""

    ranks: tuple[int, ...]
    leaving: tuple[int, ...]
    all_run: bool


def check(request: SessionRequest, *, preemptible: bool, in_one_place: bool, settings: Settings) -> None:
    """Refuse what cannot be elastic; raises InputError."""
    if not is_elastic(request):
        return
    refusals = {
        "preemptible": (
            not preemptible,
            Sentence("further containers are given up for others"),
            Sentence("let it be preemptible"),
        ),
        "within_required": (
            in_one_place,
            Sentence("where it has to be near others is chosen once"),
            Sentence("leave that out"),
        ),
        "max_replicas": (
            settings.engine is Launching.SLURM,
            Sentence("Slurm lends a session no more than it began with"),
            Sentence("ask for a fixed number"),
        ),
    }
    for field, (is_refused, reason, hint) in refusals.items():
        if is_refused:
            raise InputError(
                Sentence("the number of its containers is to change: {reason}", reason=reason), where=field, hint=hint
            )


def is_elastic(request: SessionRequest) -> bool:
    """Return whether the number of containers may change while it runs."""
    return request.most_replicas > request.replicas


async def members(db: AsyncSession, ids: Collection[UUID]) -> dict[UUID, Members]:
    """Return the containers of sessions."""
    found: dict[UUID, Members] = {}
    columns = (Container.session_id, Container.rank, Container.leaving, Container.status)
    query = select(*columns).where(among(Container.session_id, ids)).order_by(Container.session_id, Container.rank)
    for id_, rank, leaving, status in await db.execute(query):
        known = found.get(id_, Members((), (), all_run=True))
        found[id_] = Members(
            (*known.ranks, rank),
            (*known.leaving, rank) if leaving else known.leaving,
            all_run=known.all_run and status is ContainerStatus.RUNNING,
        )
    return found


async def grow(
    db: AsyncSession,
    session_id: UUID,
    revision: int,
    places: Mapping[int, Placement],
    node_ids: Mapping[str, UUID],
) -> bool:
    """Give a running session further containers, by rank; returns False where it has changed since it was read."""
    milli = sum(share.milli for place in places.values() for share in place.shares)
    more = {"replicas": Session.replicas + len(places), "held_milli": Session.held_milli + milli, "replicas_at": now()}
    as_read = and_(Session.id == session_id, Session.revision == revision, Session.state == State.RUNNING)
    query = update(Session).where(as_read).values(**more, revision=Session.revision + 1).returning(Session.id)
    if await db.scalar(query, execution_options={"synchronize_session": False}) is None:
        return False
    for rank, place in places.items():
        shares = [
            GpuShareRow(session_id=session_id, rank=rank, index=share.index, uuid=share.uuid, milli=share.milli)
            for share in place.shares
        ]
        node_id = node_ids[place.node]
        repository.add(db, Container(session_id=session_id, rank=rank, node_id=node_id, ports={}, gpu_shares=shares))
    await db.flush()
    await accounting.reshare(db, session_id, now())
    return True


async def note_not_grown(db: AsyncSession, reasons: Mapping[UUID, str]) -> None:
    """Write why sessions get no further containers; those without a reason could, and nothing is said of them.

    As with other reasons, nothing is decided anew for that.
    """
    given = rows_of(
        {
            "id": (Session.id.type, reasons),
            "said": (Session.not_grown.type, reasons.values()),
            "parts": (Session.not_grown_parts.type, map(parts_of, reasons.values())),
        }
    )
    said, parts = (
        select(each).where(given.c.id == Session.id).scalar_subquery() for each in (given.c.said, given.c.parts)
    )
    values = {"not_grown": func.coalesce(said, ""), "not_grown_parts": func.coalesce(parts, literal({}, JSONB))}
    query = update(Session).where(IS_GROWING, Session.not_grown != values["not_grown"]).values(**values)
    await db.execute(query, execution_options={"synchronize_session": False})


def rests(statuses: Iterable[ContainerStatus | None], replicas_at: datetime | None) -> str:
    """Return why the scheduler does not look yet whether a session can have more containers; empty where it does."""
    if any(status is not ContainerStatus.RUNNING for status in statuses):
        return Sentence("it may have more once all of its containers run")
    if replicas_at and replicas_at + REST > now():
        at = Moment.at(replicas_at + REST, seconds=True)
        return Sentence("it keeps its containers for a while; it may have more from {at} on", at=at)
    return ""


async def give_up(db: AsyncSession, session_id: UUID, revision: int, ranks: Collection[int]) -> bool:
    """Let containers of a running session be removed; returns False where it has changed since it was read."""
    if not await service.change(db, Read(session_id, revision), replicas_at=now()):
        return False
    meant = and_(Container.session_id == session_id, Container.rank.in_(ranks))
    await db.execute(
        update(Container).where(meant).values(leaving=True), execution_options={"synchronize_session": False}
    )
    return True


async def forget(db: AsyncSession, session: Session, ranks: Collection[int]) -> bool:
    """Free what containers held that are gone; returns False where the session has changed since it was read."""
    milli = sum(share.milli for each in session.containers if each.rank in ranks for share in each.gpu_shares)
    values = {
        "replicas": session.replicas - len(ranks),
        "held_milli": max(0, session.held_milli - milli),
        "replicas_at": now(),
    }
    if not await changes.write(db, [Change.of(session, values)]):
        return False
    meant = and_(Container.session_id == session.id, Container.rank.in_(ranks))
    await db.execute(delete(Container).where(meant), execution_options={"synchronize_session": False})
    await accounting.reshare(db, session.id, now())
    return True
