"""The bench of the loop: which decisions it times, and what it judges them by."""

from __future__ import annotations

from api.scheduler.decide import decide
from api.scheduler.snapshot import Snapshot
from tests.bench.scheduler_loop import ENOUGH, decisions, p99
from tests.unit.api.scheduler.world import node, project, work


def test_the_decisions_inside_are_timed_each_by_its_own() -> None:
    snapshot = Snapshot(0, (node("n", 1),), (project("a", 1),), queue=(work("w", "a", 1),))
    with decisions() as cpu:
        assert decide(snapshot).placements.keys() == {"w"}
        decide(snapshot)
    decide(snapshot)
    assert len(cpu) == 2


def test_the_percentile_of_decisions_is_that_of_the_99th_of_a_hundred() -> None:
    times = [0.001] * (ENOUGH - 2) + [0.05, 0.2]
    assert p99(times) == {"decision_p99_cpu_ms": 50.0}
    assert p99(times[1:]) == {}, "too few"
