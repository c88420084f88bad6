"""Rules of accounting: spans are written as sessions start and stop, and added up for reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import ceil
from statistics import mean
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.resources.accounting import hours, repository
from api.resources.accounting.costs import EXACT, Held, Prices
from api.resources.accounting.schemas import (
    AccountingRow,
    AccountingView,
    By,
    TimelineSeries,
    TimelineView,
    UtilizationStep,
    UtilizationView,
    WaitFigures,
    WaitRow,
    WaitsView,
)
from api.tables.sessions import ENDED, State
from common.errors import InputError
from common.sentence import Sentence

LONGEST = timedelta(days=366)
MINUTE_S = 60
"""The shortest step of what is told over time."""
MAX_POINTS = 1000
POINTS = 120
"""Steps at most, and unless it is said."""
WAIT_POINTS = 30
"""The same of waits, which are fewer: one a day in a month."""


@dataclass(frozen=True)
class _Whose:
    """A user, project or domain of a report. One that was deleted comes after those that are there."""

    name: str
    deleted: bool = False
    id: UUID | None = None


@dataclass
class _Sum:
    sessions: int = 0
    seconds: float = 0.0
    gpu_milli_seconds: float = 0.0
    covered_milli_seconds: float = 0.0
    busy_milli_seconds: float = 0.0
    weighted: Decimal = Decimal(0)

    def add(self, sessions: int | None, seconds: Decimal | float | None, milli: Decimal | float | None) -> None:
        """Add what the database has summed up; of nothing it says None."""
        self.sessions += sessions or 0
        self.seconds += float(seconds or 0)
        self.gpu_milli_seconds += float(milli or 0)

    def add_busy(self, covered: float, busy: float) -> None:
        """Add the milli-GPU-seconds of which it is known how busy they were, and how many were."""
        self.covered_milli_seconds += covered
        self.busy_milli_seconds += busy

    def row(self, whose: _Whose, prices: Prices | None) -> AccountingRow:
        """Return the sum as a row of the report."""
        return AccountingRow(
            id=whose.id,
            name=whose.name,
            deleted=whose.deleted,
            sessions=self.sessions,
            session_seconds=round(self.seconds, 3),
            gpu_seconds=round(self.gpu_milli_seconds / 1000, 3),
            covered_gpu_seconds=round(self.covered_milli_seconds / 1000, 3),
            busy_gpu_seconds=round(self.busy_milli_seconds / 1000, 3),
            cost=prices.rounded(self.weighted) if prices else None,
        )


async def follow(db: AsyncSession, changes: Mapping[UUID, Mapping[str, Any]]) -> None:
    """Note what changes of sessions, by their new values, mean for their spans: they run, or hold nothing any more.

    A session that came and went between two looks at it ends with the moment when it started among the values.
    """
    begun, ended = {}, {}
    for id_, values in changes.items():
        state, started_at = values.get("state"), values.get("started_at")
        if state is State.RUNNING or (state in ENDED and started_at):
            begun[id_] = started_at or now()
        if state is State.PENDING or state in ENDED:
            ended[id_] = values.get("finished_at") or now()
    if begun:
        await repository.begin(db, begun)
    if ended:
        await repository.close(db, ended)


async def begin(db: AsyncSession, session_id: UUID, at: datetime | None = None) -> None:
    """Note that a session runs from a moment on (now). One that has a span already keeps it.

    Where it runs again, because a lost node came back with it, no time counts twice.
    """
    await repository.begin(db, {session_id: at or now()})


async def reshare(db: AsyncSession, session_id: UUID, at: datetime) -> None:
    """Note that a running session holds another share from a moment on; the session has it already."""
    if await repository.has_open(db, session_id):
        await repository.close(db, {session_id: at})
        await begin(db, session_id, at)


async def end(db: AsyncSession, session_id: UUID, at: datetime | None = None) -> None:
    """Note that a session holds nothing from a moment on (now); for one that never ran it does nothing."""
    await repository.close(db, {session_id: at or now()})


async def move(db: AsyncSession, step: timedelta) -> None:
    """Move the spans of sessions that have not ended, as the clock was set by so much."""
    await repository.move(db, step)


async def report(
    db: AsyncSession, caller: Identity, starts_at: datetime, ends_at: datetime, by: By, *, prices: Prices | None
) -> AccountingView:
    """Return what ran in a period, of what the caller may see, and by the site's prices what it costs.

    Raises InputError for a bad period.
    """
    wanted = _wanted(caller, starts_at, ends_at)
    sums: defaultdict[_Whose, _Sum] = defaultdict(_Sum)
    total = _Sum()
    if wanted.starts_at < wanted.ends_at:
        for read in (repository.spans_within, repository.days_within):
            for id_, name, there, *amounts in await read(db, wanted, by):
                sums[_whose(id_, name, there)].add(*amounts)
            # a session that was moved counts here once
            for *_, sessions, seconds, milli in await read(db, wanted, None):
                total.add(sessions, seconds, milli)
        for id_, name, there, covered, busy in await hours.busy_within(db, wanted, by):
            for each in (sums[_whose(id_, name, there)], total):
                each.add_busy(covered, busy)
        if prices:
            for id_, name, there, models, *amounts in await repository.costs_within(db, wanted, by):
                weighted = prices.weighted(Held(models, *(amount or Decimal(0) for amount in amounts)))
                for each in (sums[_whose(id_, name, there)], total):
                    each.weighted = EXACT.add(each.weighted, weighted)
    rows = [sums[whose].row(whose, prices) for whose in sorted(sums, key=lambda whose: (whose.name, whose.deleted))]
    return AccountingView(
        starts_at=starts_at,
        ends_at=ends_at,
        by=by,
        currency=prices.currency if prices else None,
        rows=rows,
        total=total.row(_Whose("total"), prices),
    )


def _whose(id_: UUID | None, name: str | None, there: UUID | None) -> _Whose:
    return _Whose(name or "", name is not None and there is None, id_)


async def timeline(
    db: AsyncSession, caller: Identity, starts_at: datetime, ends_at: datetime, by: By, *, points: int
) -> TimelineView:
    """Return what was held over time, in so many steps at most, of what the caller may see.

    Raises InputError for a bad period.
    """
    wanted = _wanted(caller, starts_at, ends_at)
    seconds = max(0.0, (wanted.ends_at - starts_at).total_seconds())
    step_s = _step_s(starts_at, ends_at, points)
    count = ceil(seconds / step_s)
    held: defaultdict[_Whose, list[float]] = defaultdict(lambda: [0.0] * count)
    for id_, name, there, number, milli_seconds in (
        await repository.steps_within(db, wanted, by, step_s) if count else ()
    ):
        if number < count:
            lasts = min(step_s, seconds - int(number) * step_s)
            held[_whose(id_, name, there)][int(number)] += float(milli_seconds) / lasts
    series = [
        TimelineSeries(
            id=whose.id, name=whose.name, deleted=whose.deleted, gpu_milli=[round(milli) for milli in values]
        )
        for whose, values in sorted(held.items(), key=lambda one: (one[0].name, one[0].deleted))
    ]
    return TimelineView(starts_at=starts_at, ends_at=ends_at, by=by, step_s=step_s, series=series)


async def waits(
    db: AsyncSession, caller: Identity, starts_at: datetime, ends_at: datetime, by: By, *, points: int
) -> WaitsView:
    """Return how long sessions waited before they ran, in so many steps at most, of what the caller may see.

    Raises InputError for a bad period.
    """
    at = now()
    wanted = _wanted(caller, starts_at, ends_at)
    seconds = max(0.0, (wanted.ends_at - starts_at).total_seconds())
    step_s = _step_s(starts_at, ends_at, points)
    of_steps = {number: figures for number, *figures in await repository.waits_over_time(db, wanted, step_s)}
    figures: defaultdict[_Whose, dict[str, Any]] = defaultdict(dict)
    for id_, name, there, *found in await repository.waits_by(db, wanted, by):
        figures[_whose(id_, name, there)] |= _figures(found)
    for id_, name, there, waiting, oldest_s in await repository.waiting_by(db, wanted, by, at):
        whose = _whose(id_, name, there)
        figures[whose] |= {"waiting": waiting, "oldest_s": round(oldest_s, 3)}
    rows = [
        WaitRow(id=whose.id, name=whose.name, deleted=whose.deleted, **figures[whose])
        for whose in sorted(figures, key=lambda whose: (whose.name, whose.deleted))
    ]
    total = WaitRow(
        name="total",
        **_figures(of_steps.get(None)),
        waiting=sum(row.waiting for row in rows),
        oldest_s=max((row.oldest_s for row in rows if row.oldest_s is not None), default=None),
    )
    steps = [WaitFigures(**_figures(of_steps.get(number))) for number in range(ceil(seconds / step_s))]
    return WaitsView(starts_at=starts_at, ends_at=ends_at, by=by, step_s=step_s, rows=rows, total=total, steps=steps)


def _figures(found: Sequence[Any] | None) -> dict[str, Any]:
    if found is None:
        return {}
    count, *waits = found
    return {"count": int(count)} | dict(
        zip(("median_s", "p95_s", "longest_s"), (round(s, 3) for s in waits), strict=True)
    )


def _step_s(starts_at: datetime, ends_at: datetime, points: int) -> int:
    return max(MINUTE_S, ceil((ends_at - starts_at).total_seconds() / points))


def _wanted(caller: Identity, starts_at: datetime, ends_at: datetime) -> repository.Wanted:
    """Return what a report of the caller is of, which ends now at the latest; raises InputError for a bad period."""
    if not starts_at < ends_at:
        raise InputError(
            Sentence("the period ends before it starts"), where="ends_at", hint=Sentence("write a later end")
        )
    if ends_at - starts_at > LONGEST:
        raise InputError(
            Sentence("the period is longer than 366 days"), where="ends_at", hint=Sentence("ask for a shorter one")
        )
    return repository.Wanted(starts_at, min(now(), ends_at), caller.reach(Action.ACCOUNTING_READ), caller.id)


async def add_up(db: AsyncSession, before: datetime, limit: int) -> int:
    """Keep of spans from before a moment the sums of each day; returns of how many sessions, at most `limit`.

    Those of a session go together, when all of them have ended.
    """
    return await repository.add_up(db, before, limit)


async def utilization(
    db: AsyncSession, caller: Identity, starts_at: datetime, ends_at: datetime, *, points: int
) -> UtilizationView:
    """Return of the site's GPUs how many there were, were held and were busy, in so many steps at most, of whole hours.

    Raises InputError for a bad period.
    """
    wanted = _wanted(caller, starts_at, ends_at)
    step_s = ceil(_step_s(starts_at, ends_at, points) / hours.HOUR_S) * hours.HOUR_S
    wanted = replace(wanted, starts_at=starts_at.astimezone(UTC).replace(minute=0, second=0, microsecond=0))
    seconds = max(0.0, (wanted.ends_at - wanted.starts_at).total_seconds())
    steps = [UtilizationStep(seconds=min(step_s, seconds - start)) for start in range(0, ceil(seconds), step_s)]
    if steps:
        await _fill(db, wanted, step_s, steps)
    return UtilizationView(starts_at=wanted.starts_at, ends_at=ends_at, step_s=step_s, steps=steps)


async def _fill(db: AsyncSession, wanted: repository.Wanted, step_s: int, steps: list[UtilizationStep]) -> None:
    """Write what there was into the steps of a period that begins with an hour."""
    first = int(wanted.starts_at.timestamp()) // hours.HOUR_S
    known: defaultdict[int, list[int]] = defaultdict(list)
    for hour, milli in await hours.gpus_over_time(db, wanted.starts_at, wanted.ends_at):
        known[(hour - first) * hours.HOUR_S // step_s].append(milli)
    held: defaultdict[int, float] = defaultdict(float)
    for *_, number, milli_seconds in await repository.steps_within(db, wanted, By.PROJECT, step_s):
        held[int(number)] += float(milli_seconds)
    busy = {number: rest for number, *rest in await hours.busy_over_time(db, wanted, step_s)}
    for number, step in enumerate(steps):
        covered, used = busy.get(number, (0, 0))
        step.gpu_milli = round(mean(known[number])) if known[number] else None
        step.held_milli = round(held[number] / step.seconds)
        step.covered_milli, step.busy_milli = (round(each / step.seconds) for each in (covered, used))


async def note_gpus(db: AsyncSession, at: datetime) -> None:
    """Note what the site has of GPUs, once an hour."""
    await hours.note_gpus(db, at)


async def forget_hours(db: AsyncSession, before: datetime) -> int:
    """Delete what is known by the hour from before a moment, a part of it; returns of how many hours of sessions."""
    return await hours.forget(db, before)
