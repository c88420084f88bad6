"""The planner between decisions: it is told of single changes and decides as one that starts anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from api.scheduler.cluster import ClusterState
from api.scheduler.decide import decide
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Cause, NodeSnapshot, SchedulerSettings, Snapshot
from tests.unit.api.scheduler.world import node, on, project, runs, work


def test_a_node_that_closes_or_opens_makes_no_new_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on it stays and counts; the decisions are those of a planner that starts anew."""
    busy = runs(work("busy", "a"), on("n1", 1))
    nodes = (node("n1", 2), node("n2", 2))
    before = Snapshot(0, nodes, (project("a", 4),), (busy,), (work("next", "a", 2),), SchedulerSettings())
    worlds = [
        replace(before, nodes=tuple(replace(each, open=each.name not in closed) for each in nodes))
        for closed in ({"n2"}, {"n1", "n2"}, {"n1"}, set[str]())
    ]
    grown = replace(before, nodes=(*nodes, node("n0", 8)))
    anew = [decide(world) for world in worlds], decide(replace(grown, running=()))
    planner = Planner.of(before)
    made: list[object] = []

    def counting(nodes: Sequence[NodeSnapshot]) -> ClusterState:
        made.append(nodes)
        return ClusterState(nodes)

    monkeypatch.setattr("api.scheduler.planner.ClusterState", counting)
    told = []
    for world in worlds:
        planner.follow(world, {})
        told.append(planner.decide(world.queue, world.now, world.settings))
    assert made == []
    planner.follow(grown, {"busy": None})
    assert (told, planner.decide(grown.queue, grown.now, grown.settings)) == anew
    assert len(made) == 2


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
