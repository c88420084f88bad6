"""Rules of metrics: whose samples are taken, for how long they are kept, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.resources.metrics import packing, repository
from api.resources.metrics.schemas import MetricsPoint, MetricsSeries, MetricsView
from api.tables.sessions import Session, container_id
from common.errors import InputError
from common.protocol import GpuMetrics, MetricsReport
from common.sentence import Sentence

DEFAULT = timedelta(hours=1)
LONGEST = timedelta(days=366)
EARLY = timedelta(minutes=5)
"""A sample of a later moment than this from now is of a clock that is wrong."""
STEP_S = 15
"""The shortest step: agents take a sample every 15 s."""
MAX_POINTS = 1000
FRESH = timedelta(minutes=15)
"""For so long samples are kept apart at least: whoever looks what GPUs do now need not unpack an hour of them."""
POINTS = 240
"""Points of one series at most, and unless it is said."""
ALL_POINTS = 20_000
"""Points of one answer at most: a session of many GPUs gets fewer of each."""


async def record(db: AsyncSession, report: MetricsReport, keep_s: float) -> int:
    """Write an agent's samples; returns how many were taken.

    Those of containers that no session has on that node are left out, and so are those of a time that is not kept.
    """
    places = await places_of(db, report.name, [sample.session_id for sample in report.samples])
    if not places:
        return 0
    moment = now()
    from_s, to_s = _seconds(moment - timedelta(seconds=keep_s)), _seconds(moment + EARLY)
    rows = {}
    for sample in report.samples:
        place, at_s = places.get(sample.container_id), _seconds(_aware(sample.at))
        if place and place[0] == _uuid(sample.session_id) and from_s <= at_s < to_s:
            rows[*place, sample.uuid, at_s] = _row(*place, at_s, sample)
    if rows:
        await repository.add(db, list(rows.values()))
    return len(rows)


async def places_of(db: AsyncSession, node: str, sessions: Iterable[str]) -> dict[str, tuple[UUID, int]]:
    """Return session and rank of the containers that sessions have on a node now, by their ids."""
    wanted = {id_ for session in sessions if (id_ := _uuid(session))}
    known = await repository.known_containers(db, node, wanted) if wanted else []
    return {container_id(id_, attempt, rank): (id_, rank) for id_, attempt, rank in known}


async def show(
    db: AsyncSession, session: Session, since: datetime | None, until: datetime | None, points: int = POINTS
) -> MetricsView:
    """Return what a session used in a time, by default its last hour; raises InputError for a bad one."""
    until = until or session.finished_at or now()
    since = since or until - DEFAULT
    if not since < until:
        raise InputError(Sentence("the time ends before it starts"), where="until", hint=Sentence("write a later end"))
    if until - since > LONGEST:
        raise InputError(
            Sentence("the time is longer than {days} days", days=LONGEST.days),
            where="until",
            hint=Sentence("ask for a shorter one"),
        )
    since_s, until_s = _seconds(since), _seconds(until) + 1
    series = await repository.count_series(db, session.id, since_s, until_s)
    points = max(1, min(points, ALL_POINTS // max(series, 1)))
    step_s = max(STEP_S, -(-(until_s - since_s) // points))
    rows = await repository.points(db, session.id, since_s, until_s, step_s)
    found = [
        MetricsSeries(rank=rank, uuid=uuid, points=[_point(row, since_s, step_s) for row in part])
        for (rank, uuid), part in groupby(rows, key=lambda row: (row.rank, row.uuid))
    ]
    return MetricsView(session_id=session.id, since=since, until=until, step_s=step_s, series=found)


async def pack(db: AsyncSession, at: datetime) -> int:
    """Pack samples of hours that are over for a while, a part of them; returns how many hours got some."""
    return await repository.pack(db, _seconds(at - FRESH) // packing.HOUR_S * packing.HOUR_S)


async def forget(db: AsyncSession, at: datetime, keep_s: float) -> int:
    """Delete hours of samples that are older than they are kept, a part of them; returns how many."""
    return await repository.forget(db, _seconds(at - timedelta(seconds=keep_s)))


def _row(session_id: UUID, rank: int, at_s: int, sample: GpuMetrics) -> dict[str, object]:
    return {
        "session_id": session_id,
        "rank": rank,
        "uuid": sample.uuid,
        "at_s": at_s,
        "memory_mib": sample.memory_mib,
        "busy_permille": sample.busy_permille,
        "processes": sample.processes,
    }


def _point(row: Row[Any], since_s: int, step_s: int) -> MetricsPoint:
    busy = row.busy_permille
    return MetricsPoint(
        at=datetime.fromtimestamp(since_s + row.step * step_s, UTC),
        memory_mib=row.memory_mib,
        busy_permille=None if busy is None else round(busy),
        processes=row.processes,
    )


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
