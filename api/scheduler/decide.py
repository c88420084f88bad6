"""The decision: a pure, deterministic function of a snapshot. The rules are in docs/adr/, decisions 15 and 16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from api.scheduler.planner import Planner
from api.scheduler.snapshot import Decision, Snapshot


def decide(snapshot: Snapshot) -> Decision:
    """Return where each workload of the queue shall run, who is reclaimed for it, or why it waits."""
    return Planner.of(snapshot).decide_on(snapshot)


def failing_waiting(snapshot: Snapshot) -> str | None:
    """Return the id of a workload of the queue with which a decision fails that does not fail without it.

    None where it does not fail, or fails without a queue, too. It takes as many decisions as the length of the queue
    has bits, and two; the cluster is built anew only after one that failed.
    """
    kept: list[Planner] = []

    def fails(count: int) -> bool:
        try:
            planner = kept.pop() if kept else Planner.of(snapshot)
            planner.decide_on(replace(snapshot, queue=snapshot.queue[:count]))
        except Exception:
            return True
        kept.append(planner)
        return False

    at = _first(len(snapshot.queue), fails)
    return None if at is None else snapshot.queue[at].id


def failing_running(snapshot: Snapshot) -> str | None:
    """Return the id of a workload that runs with which a decision fails, whoever waits, that does not without it."""

    def fails(count: int) -> bool:
        try:
            decide(replace(snapshot, queue=(), running=snapshot.running[:count]))
        except Exception:
            return True
        return False

    at = _first(len(snapshot.running), fails)
    return None if at is None else snapshot.running[at].workload.id


def _first(count: int, fails: Callable[[int], bool]) -> int | None:
    """Return which of some items makes the first ones fail up to it that do not without it; None where none does."""
    if fails(0) or not fails(count):
        return None
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(middle) else (middle, bad)
    return good
