"""Fair shares hold whatever the time that sessions have waited: what is deferred is not counted as held."""

from __future__ import annotations

import pytest

from api.scheduler.snapshot import Cause
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

AGES = (10, 100, 100_000)
NOW = 200_000


@pytest.mark.parametrize("age", AGES)
def test_two_projects_that_want_the_same_get_the_same(age: int) -> None:
    world = World((node("n", 4),), (project("a", 1), project("b", 1)), now=NOW)
    world.submit(*(work(f"{name}{at}", name, 1, NOW - age) for name in "ab" for at in range(3)))
    world.settle()
    assert world.held() == {"a": 2000, "b": 2000}


@pytest.mark.parametrize("age", AGES)
def test_a_larger_one_that_waits_does_not_cost_its_project_the_quota(age: int) -> None:
    """`a` has one GPU of its two; its older session of two would pass the quota, its younger one of one would not."""
    world = World((node("n", 4),), (project("a", 2), project("b", 0, weight=100)), now=NOW)
    world.running["r"] = runs(work("r", "a"), on("n", 1))
    for at in range(1, 4):
        world.running[f"b{at}"] = runs(work(f"b{at}", "b"), on("n", *[0] * at, 1), since=at)
    world.submit(work("large", "a", 2, NOW - age), work("small", "a", 1, NOW - age + 1))
    assert len(world.settle()) == 1
    assert world.held() == {"a": 2000, "b": 2000}


@pytest.mark.parametrize("age", AGES)
def test_a_project_that_keeps_room_for_a_large_one_is_no_further_from_its_fair_share(age: int) -> None:
    world = World((node("m", 4), node("n", 4)), (project("a", 4), project("b", 0)), now=NOW)
    world.running["fixed"] = runs(work("fixed", "a", 1, preemptible=False), on("m", 1))
    world.submit(work("large", "a", 4, NOW - age, preemptible=False))
    world.submit(*(work(f"{name}{at}", name, 1, NOW - age + 1) for name in "ab" for at in range(7)))
    world.settle()
    assert world.held()["a"] >= 4000


def test_the_quota_is_left_to_a_large_one_under_a_hard_cap() -> None:
    world = World((node("n", 4),), (project("a", 4, over_quota=False),), now=NOW)
    world.running["r"] = runs(work("r", "a", 2), on("n", 1, 1))
    world.submit(work("large", "a", 4, NOW - 100), work("small", "a", 1, NOW - 99))
    waits = world.step().pending_reasons
    assert {id_: wait.cause for id_, wait in waits.items()} == {"large": Cause.QUOTA, "small": Cause.QUOTA}
    world.delete("r")
    world.settle()
    assert set(world.running) == {"large"}


def test_shares_come_in_whole_sessions() -> None:
    """4 GPUs by 3:2:1 are 2, 1.33 and 0.67: nobody can take the third of a session."""
    weights = {"a": 3, "b": 2, "c": 1}
    world = World((node("n", 4),), tuple(project(name, 0, weight=weight) for name, weight in weights.items()), now=NOW)
    world.submit(*(work(f"a{at}", "a", 1, NOW) for at in range(4)))
    world.settle()
    world.submit(*(work(f"{name}{at}", name, 1, NOW + 9) for name in "bc" for at in range(4)))
    world.settle()
    assert world.held() == {"a": 2000, "b": 1000, "c": 1000}


def test_one_larger_than_what_is_beyond_the_fair_share_goes_where_it_has_no_claim_to_come_back() -> None:
    world = World((node("n", 4),), (project("a", 0, weight=1), project("b", 0, weight=1)), now=NOW)
    world.running["large"] = runs(work("large", "b", 3), on("n", 1, 1, 1))
    world.submit(*(work(f"{name}{at}", name, 1, NOW) for name in "ab" for at in range(2)))
    assert world.settle() == ["large"]
    assert world.held() == {"a": 2000, "b": 2000}
