"""Capacity: what quotas of projects may come to of the cluster's GPUs, over time. Pure: moments and milli-GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest


@dataclass(frozen=True)
class QuotaPeriod:
    """`milli` GPUs for the period [`starts_at`, `ends_at`), without end where that is None."""

    milli: int
    starts_at: datetime
    ends_at: datetime | None = None

    def at(self, moment: datetime) -> int:
        """Return what it comes to at a moment."""
        return self.milli if covers(self.starts_at, self.ends_at, moment) else 0


@dataclass(frozen=True)
class Step:
    """From `since` up to `until` (None: for ever) the quotas come to `milli`."""

    since: datetime
    until: datetime | None
    milli: int


def covers(starts_at: datetime, ends_at: datetime | None, moment: datetime) -> bool:
    """Return whether a moment lies in a period; its end does not belong to it."""
    return starts_at <= moment and (ends_at is None or moment < ends_at)


def steps(quotas: Iterable[QuotaPeriod], now: datetime) -> list[Step]:
    """Return what quotas come to from now on, step by step; what is over does not count."""
    changes: dict[datetime, int] = {now: 0}
    for quota in quotas:
        if quota.ends_at is not None and quota.ends_at <= max(now, quota.starts_at):
            continue
        starts_at = max(now, quota.starts_at)
        changes[starts_at] = changes.get(starts_at, 0) + quota.milli
        if quota.ends_at is not None:
            changes[quota.ends_at] = changes.get(quota.ends_at, 0) - quota.milli
    return list(_sums(sorted(changes.items())))


def excess(
    others: Iterable[QuotaPeriod], old: QuotaPeriod | None, new: QuotaPeriod, *, capacity: int, now: datetime
) -> Step | None:
    """Return the first step at which the quotas pass the capacity and `new` asks for more than `old` did, if any.

    What is too much already, as after a node was taken away, does not keep a quota from being made smaller or shorter.
    """
    # The old quota takes part with nothing, so that its ends are steps, too.
    edges = [QuotaPeriod(0, old.starts_at, old.ends_at)] if old else []
    for step in steps([*others, new, *edges], now):
        asked, had = new.at(step.since), old.at(step.since) if old else 0
        if step.milli > capacity and asked > had:
            return step
    return None


def overfull(course: Sequence[Step], quota: QuotaPeriod, capacity: int) -> Step | None:
    """Return the first step within a quota's period that passes the capacity, if any."""
    for step in course:
        begins_before_its_end = quota.ends_at is None or step.since < quota.ends_at
        ends_after_its_start = step.until is None or step.until > quota.starts_at
        if step.milli > capacity and begins_before_its_end and ends_after_its_start:
            return step
    return None


def _sums(changes: Sequence[tuple[datetime, int]]) -> Iterator[Step]:
    total = 0
    ends = [moment for moment, _ in changes[1:]]
    for (since, change), until in zip_longest(changes, ends):
        total += change
        yield Step(since, until, total)
