"""What several decisions come to: nobody is stopped in turn, nobody starves, and rows of the product's list."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from api.scheduler.cycle import Cycle
from api.scheduler.decide import FailingWaiting, failing_running
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Cause, Decision, Running, SchedulerSettings, Snapshot, Workload
from tests.unit.api.scheduler.world import World, node, on, project, runs, work


def test_three_times_a_half_of_one_gpu_two_run_and_the_third_runs_when_one_is_deleted() -> None:
    lab = World((node("n", 1),), (project("a", 1),))
    lab.submit(*(work(f"s{at}", "a", 0.5, at) for at in range(3)))
    lab.settle()
    assert (set(lab.running), set(lab.queue)) == ({"s0", "s1"}, {"s2"})
    lab.delete("s0")
    lab.settle()
    assert (set(lab.running), set(lab.queue)) == ({"s1", "s2"}, set())


def test_a_larger_one_that_is_not_guaranteed_does_not_hold_back_the_guarantee_behind_it() -> None:
    lab = World((node("n", 4),), (project("a", 2), project("b", 0)))
    lab.submit(work("too-large", "a", 3, 0), work("small", "a", 2, 1), work("idle", "b", 2, 2))
    lab.submit(work("other", "b", 2, 3))
    assert lab.settle() == [], "what would be reclaimed at once is not started"
    assert set(lab.running) == {"small", "idle"}


def test_one_that_never_fits_does_not_hold_back_those_behind_it() -> None:
    lab = World((node("n", 2),), (project("a", 2), project("b", 0)))
    lab.submit(work("never", "a", 3, 0), work("small", "a", 2, 1), work("idle", "b", 1, 0))
    assert lab.settle() == []
    assert set(lab.running) == {"small"}


def test_under_a_hard_cap_a_large_one_does_not_starve_behind_small_ones_of_its_own_project() -> None:
    lab = World((node("n", 4),), (project("a", 4, over_quota=False),), SchedulerSettings(reserve_after_s=5))
    for at in range(40):
        lab.submit(work(f"small{at}", "a", 1, at))
        if at == 3:
            lab.submit(work("large", "a", 4, at))
        for id_ in lab.step().placements:
            if id_ == "large":
                return
        lab.delete(
            *(id_ for id_, each in lab.running.items() if not each.terminating and lab.now - each.since // 10**6 > 3)
        )
    raise AssertionError("the large one starved")


def test_two_projects_do_not_stop_each_other_in_turn() -> None:
    lab = World((node("n", 3),), (project("a", 0, weight=1), project("b", 0, weight=1)))
    lab.submit(*(work(f"{name}{at}", name, 1, at) for name in "ab" for at in range(4)))
    assert len(lab.settle()) == 0
    for _ in range(5):
        assert not lab.step().reclaims
    assert lab.held() == {"a": 2000, "b": 1000}


def test_without_weight_and_quota_there_is_no_part_of_what_is_spare() -> None:
    """Such a project has what the others leave, for as long as they do."""
    world = World((node("n", 4),), (project("a", 0, weight=1), project("b", 0), project("c", 1)))
    world.submit(*(work(f"b{at}", "b") for at in range(4)))
    world.settle()
    assert world.held() == {"a": 0, "b": 4000, "c": 0}
    world.submit(*(work(f"a{at}", "a", at=1) for at in range(2)))
    world.settle()
    assert world.held() == {"a": 2000, "b": 2000, "c": 0}
    world.submit(*(work(f"a{at}", "a", at=2) for at in range(2, 4)), *(work(f"c{at}", "c", at=2) for at in range(2)))
    world.settle()
    assert world.held() == {"a": 2000, "b": 0, "c": 2000}, "a quota of one is worth as much as a weight of one"


def test_victims_go_back_to_the_queue_and_run_again_when_there_is_room() -> None:
    lab = World((node("n", 4),), (project("a", 2), project("b", 0)))
    lab.submit(*(work(f"b{at}", "b", 1, at) for at in range(4)))
    lab.settle()
    lab.submit(work("a0", "a", 2, 10))
    assert sorted(lab.settle()) == ["b2", "b3"] or len(lab.queue) == 2
    assert lab.held() == {"a": 2000, "b": 2000}
    assert {wait.cause for wait in lab.step().pending_reasons.values()} == {Cause.FAIR_SHARE}
    lab.delete("a0")
    lab.settle()
    assert lab.held() == {"a": 0, "b": 4000}


def test_what_can_never_be_guaranteed_takes_nothing_guaranteed_of_its_own_project() -> None:
    lab = World((node("n", 3),), (project("a", 0), project("b", 0.5)))
    lab.running["spare"] = runs(work("spare", "a", 0.5, priority=10), on("n", 0, 0, 0.5))
    lab.submit(work("small", "b", 0.1, priority=10), work("large", "b", 2.5))
    lab.settle()
    assert "small" in lab.running, "reclaimed, it would be the first to return, and so for ever"


@pytest.mark.parametrize("bad", [None, *range(7)])
@pytest.mark.parametrize("runs_", [True, False])
def test_the_workload_at_which_a_decision_fails_is_found(
    monkeypatch: pytest.MonkeyPatch, bad: int | None, runs_: bool
) -> None:
    """Among all that run, or among all that wait."""
    add, begin = Planner.add, Cycle.__init__

    def check(workload: Workload) -> None:
        if workload.id == f"{'r' if runs_ else 'w'}{bad}":
            raise ZeroDivisionError

    def adding(self: Planner, item: Running) -> None:
        check(item.workload)
        add(self, item)

    def beginning(self: Cycle, state: Any, queue: Any, *args: Any) -> None:
        for workload in queue:
            check(workload)
        begin(self, state, queue, *args)

    monkeypatch.setattr(Planner, "add", adding)
    monkeypatch.setattr(Cycle, "__init__", beginning)
    running = tuple(runs(work(f"r{at}", "a", 1), on("n", *[0] * at, 1)) for at in range(7))
    queue = tuple(work(f"w{at}", "a", 1) for at in range(7))
    snapshot = Snapshot(0, (node("n", 7),), (project("a", 7),), running, queue)
    assert failing_running(snapshot) == (None if bad is None or not runs_ else f"r{bad}")
    assert failing_waiting(snapshot) == (None if bad is None or runs_ else f"w{bad}")


@pytest.mark.parametrize("pair", [("w0", "w6"), ("w2", "w3")])
def test_where_a_decision_fails_at_two_together_one_of_them_is_found(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[str, str]
) -> None:
    begin = Cycle.__init__

    def beginning(self: Cycle, state: Any, queue: Any, *args: Any) -> None:
        if {*pair} <= {workload.id for workload in queue}:
            raise ZeroDivisionError
        begin(self, state, queue, *args)

    monkeypatch.setattr(Cycle, "__init__", beginning)
    snapshot = Snapshot(0, (node("n", 7),), (project("a", 7),), queue=tuple(work(f"w{at}", "a", 1) for at in range(7)))
    assert failing_waiting(snapshot) == pair[1]


def test_however_many_there_are_the_planner_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, made = Cycle.__init__, Counter[str]()
    bad = {f"w{at}" for at in range(0, 40, 3)}

    def beginning(self: Cycle, state: Any, queue: Any, *args: Any) -> None:
        if bad & {workload.id for workload in queue}:
            raise ZeroDivisionError
        begin(self, state, queue, *args)

    def counted(snapshot: Snapshot) -> Planner:
        made["planners"] += 1
        return make(snapshot)

    make = Planner.of
    monkeypatch.setattr(Planner, "of", counted)
    monkeypatch.setattr(Cycle, "__init__", beginning)
    queue = [work(f"w{at}", "a", 1) for at in range(40)]
    failing, found = FailingWaiting(Snapshot(0, (node("n", 7),), (project("a", 7),), (), tuple(queue))), set[str]()
    while workload := failing.find(queue):
        found.add(workload.id)
        queue.remove(workload)
    assert (found, made["planners"]) == (bad, 1)


def test_a_planner_that_a_failure_has_changed_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    planners: list[Planner] = []

    def spoiling(self: Planner, snapshot: Snapshot) -> Decision:
        planners.append(self)
        self.add(runs(work("stray", "a", 1), on("n", 1)))
        raise ZeroDivisionError

    monkeypatch.setattr(Planner, "decide_on", spoiling)
    failing = FailingWaiting(Snapshot(0, (node("n", 7),), (project("a", 7),)))
    assert failing.fails(())
    assert failing.fails(())
    assert planners[0] is not planners[1]


def failing_waiting(snapshot: Snapshot) -> str | None:
    found = FailingWaiting(snapshot).find(snapshot.queue)
    return found.id if found else None
