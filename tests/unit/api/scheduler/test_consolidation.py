"""Consolidation: running work moves elsewhere where that lets somebody start who is entitled to room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.scheduler.snapshot import Cause, SchedulerSettings
from tests.unit.api.scheduler.world import SECOND, World, node, on, project, runs, sliced, work

NOW = 10_000
MOVING = SchedulerSettings(consolidation=True)


def two_halves(settings: SchedulerSettings = MOVING, **more: Any) -> World:
    """One session on each of two nodes, within the quota of its project; an owner of two GPUs asks for a node."""
    world = World((node("m", 2), node("n", 2)), (project("a", 2), project("b", 2)), settings, NOW)
    world.running["b-m"] = runs(work("b-m", "b", 1, **more), on("m", 1), since=1)
    world.running["b-n"] = runs(work("b-n", "b", 1, **more), on("n", 1), since=2)
    world.submit(work("own", "a", 2, NOW))
    return world


def test_a_guarantee_starts_where_another_session_was_that_fits_elsewhere() -> None:
    world = two_halves()
    decision = world.step()
    (moved,) = decision.reclaims
    assert (moved.victim, moved.beneficiary, moved.moved) == ("b-n", "own", True)
    assert moved.reason == "a session of another project fits once it is elsewhere; room on m is kept for it"
    assert decision.pending_reasons["own"].cause is Cause.RECLAIMING
    assert [place.node for place in decision.reservations["b-n"]] == ["m"]
    assert world.settle() == []
    assert set(world.running) == {"own", "b-m", "b-n"}


def test_it_is_switched_off_until_the_administrator_wants_it() -> None:
    world = two_halves(SchedulerSettings())
    assert world.settle() == []
    assert set(world.queue) == {"own"}


def test_nobody_else_gets_the_places_of_one_that_is_moved() -> None:
    world = two_halves()
    world.step()
    world.submit(*(work(f"late{at}", "a", 1, at) for at in range(3)))
    for _ in range(4):
        world.step()
    assert {"own", "b-m", "b-n"} <= set(world.running)


@pytest.mark.parametrize(
    "settings",
    [
        replace(MOVING, moves_per_hour=0),
        replace(MOVING, moves_per_session=0),
        replace(MOVING, min_runtime_s=NOW),
    ],
)
def test_limits(settings: SchedulerSettings) -> None:
    assert not two_halves(settings).step().reclaims


def test_a_young_session_of_a_project_that_spares_it_is_not_moved() -> None:
    world = two_halves()
    world.projects = (project("a", 4), project("b", 4, min_runtime_s=NOW + 1))
    assert not world.step().reclaims
    world.projects = (project("a", 4), project("b", 4, min_runtime_s=1))
    assert world.step().reclaims


def test_one_that_was_moved_stays_from_then_on() -> None:
    assert not two_halves(moves=1).step().reclaims
    assert two_halves(replace(MOVING, moves_per_session=2), moves=1).step().reclaims


@pytest.mark.parametrize(("ago", "moves"), [(3599, 0), (3601, 1)])
def test_so_many_are_moved_in_an_hour(ago: int, moves: int) -> None:
    world = two_halves(replace(MOVING, moves_per_hour=1))
    world.submit(work("before", "b", 0, NOW, moves=1, moved_at=(NOW - ago) * SECOND))
    assert len(world.step().reclaims) == moves


def test_what_may_not_be_stopped_is_not_moved() -> None:
    assert not two_halves(preemptible=False).step().reclaims


def test_nobody_is_moved_for_who_is_not_entitled_to_room() -> None:
    world = two_halves()
    world.projects = (project("a", 0), project("b", 4))
    world.submit(work("entitled", "b", 2, NOW + 1))
    assert {reclaim.beneficiary for reclaim in world.step().reclaims} == {"entitled"}


def test_nobody_is_moved_who_would_have_nowhere_to_go() -> None:
    world = two_halves()
    world.projects = (project("a", 2), project("b", 2), project("c", 1))
    world.running["c-m"] = runs(work("c-m", "c", 1, preemptible=False), on("m", 0, 1))
    assert not world.step().reclaims


def test_a_larger_one_stays_where_only_a_smaller_one_fits_elsewhere() -> None:
    """On `m` the smaller set is in the way, but its session is bound to that node; the one on `n` fits on `o`."""
    nodes = (node("m", 4, groups=("red",)), node("n", 4), node("o", 4))
    world = World(nodes, (project("a", 4), project("b", 8)), MOVING, NOW)
    world.running["bound"] = runs(work("bound", "b", 1, groups=("red",), grouped_only=True), on("m", 1))
    world.running["free"] = runs(work("free", "b", 2), on("n", 1, 1))
    world.running["rest"] = runs(work("rest", "b", 2, preemptible=False), on("o", 1, 1))
    world.submit(work("own", "a", 4, NOW))
    assert [reclaim.victim for reclaim in world.step().reclaims] == ["free"]
    world.settle()
    assert "own" in world.running
    assert world.running["free"].placements[0].node in ("m", "o")
    assert world.running["bound"].placements[0].node == "m"


def test_a_session_moves_rather_than_another_is_stopped_and_waits() -> None:
    world = two_halves()
    world.projects = (project("a", 2), project("b", 0))
    assert [reclaim.moved for reclaim in world.step().reclaims] == [True]
    world.settle()
    assert set(world.running) == {"own", "b-m", "b-n"}


def test_parts_of_gpus_move_together_on_one_node() -> None:
    world = World((node("n", 2),), (project("a", 1), project("b", 1)), MOVING, NOW)
    world.running["b0"] = runs(work("b0", "b", 0.5), on("n", 0.5))
    world.running["b1"] = runs(work("b1", "b", 0.5), on("n", 0, 0.5))
    world.submit(work("own", "a", 1, NOW))
    assert len(world.settle()) == 1
    assert set(world.running) == {"own", "b0", "b1"}


def a_slice_elsewhere(**more: Any) -> World:
    """A quarter of a GPU is in the way of an owner, and all that is free is a slice, which counts as half of one."""
    world = World((node("m", 1), sliced("n", 500)), (project("a", 1), project("b", 0.25, **more)), MOVING, NOW)
    world.running["b-m"] = runs(work("b-m", "b", 0.25), on("m", 0.25), since=1)
    world.submit(work("own", "a", 1, NOW))
    return world


@pytest.mark.parametrize("more", [{"over_quota": False}, {"limit_milli": 250}, {}])
def test_nobody_moves_to_a_slice_that_counts_for_more_than_it_has(more: dict[str, Any]) -> None:
    """It would be beyond what its project may have, and wait; or beyond the quota, and be stopped for others."""
    world = a_slice_elsewhere(**more)
    assert not world.step().reclaims


def test_a_session_moves_beside_slices_that_count_for_more_than_it_has() -> None:
    world = a_slice_elsewhere(over_quota=False)
    world.nodes = (node("m", 2), sliced("n", 500, gpus=1))
    world.projects = (project("a", 2), project("b", 0.25, over_quota=False))
    world.submit(work("own", "a", 2, NOW))
    assert world.settle() == ["b-m"]
    assert world.running["b-m"].placements == (on("n", 0.25),)


def test_who_may_not_have_the_room_does_not_keep_others_from_it() -> None:
    """What the first asks for is there as a slice alone, which is more than its project may have."""
    nodes = (sliced("m", 500, groups=("red",)), sliced("n", 500, groups=("blue",)))
    projects = project("a", 0.25, over_quota=False), project("b", 0.5), project("c", 0.5)
    world = World(nodes, projects, MOVING, NOW)
    world.running["c-m"] = runs(work("c-m", "c", 0.25, held_milli=500), on("m", 0.5), since=1)
    red: dict[str, Any] = {"groups": ("red",), "grouped_only": True}
    world.submit(work("refused", "a", 0.25, NOW - 2, **red), work("own", "b", 0.25, NOW - 1, **red))
    world.settle()
    assert set(world.running) == {"own", "c-m"}
