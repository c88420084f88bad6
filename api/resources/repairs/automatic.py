"""Rules of repairs that are ordered for a failing check: which one, when none is, and when no more is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from common.repairs import OPEN, REPAIRS, TRIES, WITHIN, RunState, most_unhealthy

ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Failing:
    """A check that fails, with its repair; without a `node` it is of the site itself. Orders of before it was well, or
    was cleared, count no more.
    """

    check: str
    repair: str
    since: datetime
    node: str | None = None
    well_at: datetime = ALWAYS


@dataclass(frozen=True)
class Past:
    """A run of a repair; without a `node` it was ordered for all."""

    repair: str
    node: str | None
    state: RunState
    ordered_at: datetime
    by: str = ""
    finished_at: datetime | None = None


@dataclass(frozen=True)
class Nodes:
    """How many nodes there are, which of them are unhealthy, and where an administrator is at work."""

    count: int
    unhealthy: frozenset[str]
    closed: frozenset[str]


@dataclass(frozen=True)
class Limits:
    """How many nodes may be unhealthy, and how long what was repaired takes to show it."""

    percentage: int
    shows_after: timedelta = timedelta()


def name(check: str) -> str:
    """Return who orders the repair of a check: no user has such a name."""
    return f"check:{check}"


def choose(
    failing: Iterable[Failing], runs: Sequence[Past], nodes: Nodes, limits: Limits, at: datetime
) -> Failing | None:
    """Return the check whose repair is to be ordered now: the one that has failed for longest; None for none.

    One runs at a time, none while too many nodes are unhealthy, each as often on a node as any repair may be tried, and
    after as many that did not help none.
    """
    if any(run.state in OPEN for run in runs):
        return None
    too_many = len(nodes.unhealthy) > most_unhealthy(nodes.count, limits.percentage)
    wanted = [
        each
        for each in failing
        if each.node not in nodes.closed
        and not (too_many and not REPAIRS[each.repair].spreads)
        and _tries(each, runs, at) < TRIES
        and not _is_to_show(each, runs, limits, at)
        and len(_ordered(each, runs, at)) < TRIES
    ]
    return min(wanted, key=lambda each: (each.since, each.node or "", each.check), default=None)


def gave_up(each: Failing, runs: Sequence[Past], limits: Limits, at: datetime) -> Sequence[Past]:
    """Return the runs that did not help a check, where no more are ordered; none where one may help yet."""
    ordered = _ordered(each, runs, at)
    is_over = not any(run.state in OPEN for run in ordered) and not _is_to_show(each, runs, limits, at)
    return ordered if len(ordered) >= TRIES and is_over else ()


def _ordered(failing: Failing, runs: Iterable[Past], at: datetime) -> Sequence[Past]:
    """Return the runs that were ordered for a check since it was well; of those in the future, which are of a clock
    that was put back, nobody knows.
    """
    own = failing.node, name(failing.check)
    return [run for run in runs if (run.node, run.by) == own and failing.well_at <= run.ordered_at <= at]


def _is_to_show(failing: Failing, runs: Iterable[Past], limits: Limits, at: datetime) -> bool:
    """Return whether its repair has ended only just, so that the check cannot be well already."""
    return any(abs(at - run.finished_at) < limits.shows_after for run in _same(failing, runs) if run.finished_at)


def _tries(failing: Failing, runs: Iterable[Past], at: datetime) -> int:
    """Return how often its repair was ordered lately; a clock that was put back has orders in the future."""
    return sum(abs(at - run.ordered_at) < WITHIN for run in _same(failing, runs))


def _same(failing: Failing, runs: Iterable[Past]) -> Sequence[Past]:
    return [run for run in runs if run.repair == failing.repair and run.node in (failing.node, None)]
