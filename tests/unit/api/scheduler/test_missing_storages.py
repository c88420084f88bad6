"""Nodes that lack a storage: what mounts it goes elsewhere or waits, and everything else goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.scheduler.decide import decide
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Cause, Decision, NodeSnapshot, Running, SchedulerSettings, Snapshot, Workload
from tests.unit.api.scheduler.world import node, on, project, runs, work

WHOLE, LACKING = node("whole", 1), node("lacking", 1, missing_storages=("shared",))


def decision(nodes: tuple[NodeSnapshot, ...], *queue: Workload, running: tuple[Running, ...] = ()) -> Decision:
    return decide(Snapshot(1000, nodes, (project("a", 1), project("b", 1)), running, queue))


def test_what_mounts_a_storage_goes_where_it_is() -> None:
    found = decision((WHOLE, LACKING), work("mounts", "a", storages=("shared",)), work("bare", "b"))
    assert found.placements == {"mounts": (on("whole", 1),), "bare": (on("lacking", 1),)}


@pytest.mark.parametrize("replicas", [1, 2])
def test_where_no_node_has_it_the_reason_names_it(replicas: int) -> None:
    nodes = (LACKING, replace(LACKING, name="other"))
    found = decision(nodes, work("mounts", "a", 0.5, replicas=replicas, storages=("shared",))).pending_reasons["mounts"]
    assert found.cause is Cause.NO_NODE
    assert found.reason.startswith("no node that it may use has the storage shared that it mounts; ask")


def test_one_that_is_closed_besides_says_that_no_node_is_ready() -> None:
    found = decision((replace(LACKING, open=False),), work("mounts", "a", storages=("shared",))).pending_reasons[
        "mounts"
    ]
    assert found.reason.startswith("no node is ready")


@pytest.mark.parametrize("replicas", [1, 2])
def test_nobody_is_reclaimed_on_a_node_that_lacks_it(replicas: int) -> None:
    """On the other node somebody who is owed room would get that of those beyond their quota."""
    others = (runs(work("first", "b", 0.5), on("lacking", 0.5)), runs(work("second", "b", 0.5), on("lacking", 0, 0.5)))
    nodes = (replace(node("lacking", 2), missing_storages=("shared",)),)
    held = tuple(replace(each, workload=replace(each.workload, project="c")) for each in others)
    found = decision(nodes, work("mounts", "a", 2 / replicas, replicas=replicas, storages=("shared",)), running=held)
    assert found.reclaims == ()


def test_a_node_that_finds_its_storage_again_takes_it_without_being_counted_anew() -> None:
    there, wait = runs(work("runs", "b"), on("whole", 1)), work("mounts", "a", storages=("shared",))
    planner = Planner.of(Snapshot(1000, (WHOLE, LACKING), (project("a", 1), project("b", 1)), (there,), (wait,)))
    cluster = planner._now
    assert not planner.decide((wait,), 1000, SchedulerSettings()).placements
    planner.set_nodes((WHOLE, replace(LACKING, missing_storages=())))
    assert planner._now is cluster
    assert planner.decide((wait,), 1000, SchedulerSettings()).placements == {"mounts": (on("lacking", 1),)}
