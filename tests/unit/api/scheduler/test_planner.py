"""The planner between decisions: it is told of single changes and decides as one that starts anew."""

from __future__ import annotations

from dataclasses import replace

from api.scheduler.decide import decide
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Cause, SchedulerSettings, Snapshot
from tests.unit.api.scheduler.world import node, on, project, runs, work


def test_the_places_of_what_has_gone_are_free_now_and_once_those_who_are_leaving_have_gone_too() -> None:
    gone = runs(work("gone", "a"), on("n", 1, 0))
    going = runs(work("going", "a"), on("n", 0, 1), terminating=True)
    before = Snapshot(
        0, (node("n", 2),), (project("a", 2),), (gone, going), (work("large", "a", 2),), SchedulerSettings()
    )
    after = replace(before, running=(going,))
    planner = Planner.of(before)
    planner.sync(after)
    decision = planner.decide(after.queue, after.now, after.settings)
    assert decision == decide(after)
    assert decision.pending_reasons["large"].cause is Cause.RECLAIMING, "it waits for `going` alone"
