"""The decision: a pure, deterministic function of a snapshot. The rules are in docs/adr/, decisions 15 and 16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from api.scheduler.planner import Planner
from api.scheduler.snapshot import Decision, Snapshot, Workload


def decide(snapshot: Snapshot) -> Decision:
    """Return where each workload of the queue shall run, who is reclaimed for it, or why it waits."""
    return Planner.of(snapshot).decide_on(snapshot)


class FailingWaiting:
    """Looks for those of a queue with which decisions fail, one after the other.

    Each takes as many decisions as the length of the queue has bits, and two; all with one `planner`, unless a decision
    that failed has left it another one than it was. No decision fails with those that are `served`.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Begin to look in the queue of a snapshot."""
        self._snapshot = snapshot
        self.planner: Planner | None = None
        self.error: Exception | None = None
        self.served: Sequence[Workload] = ()

    def find(self, queue: Sequence[Workload]) -> Workload | None:
        """Return one of the queue with which a decision fails that does not without it.

        None where it does not fail, or fails without a queue, too.
        """
        served = {each.id for each in self.served}
        good = sum(each.id in served for each in queue)
        at = _first(len(queue), lambda count: self.fails(queue[:count]), good)
        if at is None:
            return None
        self.served = queue[:at]
        return queue[at]

    def fails(self, queue: Sequence[Workload]) -> bool:
        """Return whether a decision fails on the queue, and note its error."""
        planner, self.planner = self.planner, None
        marks: object = None
        try:
            planner = planner or Planner.of(self._snapshot)
            marks = planner.marks()
            planner.decide_on(replace(self._snapshot, queue=tuple(queue)))
        except Exception as error:
            self.error = error
            self.planner = planner if planner and planner.marks() == marks else None
            return True
        self.planner = planner
        return False


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


def _first(count: int, fails: Callable[[int], bool], good: int = 0) -> int | None:
    """Return which of some items makes the first ones fail up to it that do not without it; None where none does.

    The first `good` ones are expected not to fail.
    """
    if not fails(count):
        return None
    if fails(good):
        if not good or fails(0):
            return None
        good, bad = 0, good
    else:
        bad = count
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(middle) else (middle, bad)
    return good
