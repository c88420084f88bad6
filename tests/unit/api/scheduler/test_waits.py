"""Fair shares hold whatever the time that sessions have waited: what is deferred is not counted as held."""

from __future__ import annotations

import pytest

from api.scheduler.snapshot import Cause, ProjectState, Running, SchedulerSettings
from tests.unit.api.scheduler.world import SECOND, World, check_begins_among_small_ones, node, on, project, runs, work

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
    assert {id_: wait.cause for id_, wait in waits.items()} == {"large": Cause.QUOTA, "small": Cause.RESERVED}
    world.delete("r")
    world.settle()
    assert set(world.running) == {"large"}


@pytest.mark.parametrize("kind", ["hard cap", "not preemptible"])
def test_only_the_first_of_a_project_keeps_its_quota(kind: str) -> None:
    """Both large ones wait for long; the tiny one fits beside the first, once what runs has ended."""
    hard = kind == "hard cap"
    more = {} if hard else {"preemptible": False}
    world = World((node("n", 8),), (project("a", 8, over_quota=not hard),), now=NOW)
    ends_at = 0 if hard else (NOW + 1000) * SECOND
    world.running["r"] = Running(work("r", "a", 2, **more), (on("n", 1, 1),), 0, ends_at=ends_at)
    world.submit(work("first", "a", 7, NOW - 100, **more), work("second", "a", 7, NOW - 99, **more))
    world.submit(work("tiny", "a", 0.5, NOW - 98, **more), work("small", "a", 1, NOW - 97, **more))
    decision = world.step()
    assert set(decision.placements) == {"tiny"}
    waits = decision.pending_reasons
    assert {id_: waits[id_].cause for id_ in waits} == {
        "first": Cause.QUOTA,
        "second": Cause.QUOTA,
        "small": Cause.RESERVED,
    }
    fixed = "" if hard else " by work that cannot be reclaimed"
    held = f"a holds 2.5 GPUs of its quota of 8 GPUs{fixed}"
    assert waits["first"].reason.startswith(held)
    assert "keeps" not in waits["first"].reason + waits["second"].reason, "they do not count each other"
    assert waits["small"].reason == f"{held} and keeps 5 GPUs for first of a, served first"
    world.delete("r")
    world.settle()
    assert set(world.running) == {"first", "tiny"}, "it starts as soon as it would have without the tiny one"


def test_nothing_is_kept_behind_what_may_stay_for_ever() -> None:
    world = World((node("n", 8),), (project("a", 8, over_quota=False),), now=NOW)
    world.running["r"] = runs(work("r", "a", 2, preemptible=False), on("n", 1, 1))
    world.submit(work("first", "a", 7, NOW - 100), *(work(f"s{at}", "a", 1, NOW - 99) for at in range(6)))
    assert len(world.step().placements) == 6


@pytest.mark.parametrize(
    "owner",
    [project("a", 8, over_quota=False), project("a", 8, limit_milli=8000), project("a", 2, weight=1, limit_milli=8000)],
)
def test_nothing_is_kept_while_the_nodes_that_it_waits_for_are_closed(owner: ProjectState) -> None:
    closed = node("c", 8, open=False, groups=("red",))
    world = World((node("n", 8), closed), (owner,), now=NOW)
    world.running["r"] = runs(work("r", "a", 2), on("n", 1, 1))
    world.submit(work("first", "a", 7, NOW - 100, groups=("red",), grouped_only=True))
    world.submit(*(work(f"s{at}", "a", 1, NOW - 99) for at in range(6)))
    assert len(world.step().placements) == 6
    assert world.decisions[-1].pending_reasons["first"].cause is Cause.QUOTA


@pytest.mark.parametrize("hard", [True, False])
def test_a_stream_of_work_that_stays_for_a_time_that_nobody_knows_does_not_starve_the_first(*, hard: bool) -> None:
    """None of it can be reclaimed, and each that ends is followed by others; the cluster is larger than the quota."""
    settings = SchedulerSettings(strict_order_after_s=50)
    world = World((node("n", 8), node("m", 8)), (project("a", 8, over_quota=not hard),), settings, now=NOW)
    world.submit(*(work(f"b{at}", "a", 1, NOW, preemptible=False) for at in range(8)))
    world.step()
    world.submit(work("first", "a", 8, NOW, preemptible=False))
    for at in range(100):
        world.submit(*(work(f"s{at}-{turn}", "a", 1, world.now, preemptible=False) for turn in range(2)))
        world.step()
        world.delete(*[id_ for id_, each in sorted(world.running.items()) if not each.terminating][:1])
        if "first" in world.running:
            assert world.now > NOW + 50, "until then the quota is used"
            return
    raise AssertionError(f"starved: {world.decisions[-1].pending_reasons['first']}")


@pytest.mark.parametrize("guests", [0, 4])
@pytest.mark.parametrize("preemptible", [True, False])
def test_a_stream_of_work_beyond_a_soft_quota_does_not_starve_the_first(*, preemptible: bool, guests: int) -> None:
    """The GPUs become free one by one, and the small ones of its own project have no cap that keeps them from it."""
    settings = SchedulerSettings(strict_order_after_s=50)
    world = World((node("n", 8),), (project("a", 4), project("b", 4)), settings, now=NOW)
    world.submit(*(work(f"b{at}", "b", 1, NOW - 1) for at in range(guests)))
    world.submit(*(work(f"a{at}", "a", 1, NOW) for at in range(8 - guests)))
    world.step()
    world.submit(work("first", "a", 4, NOW, preemptible=preemptible))
    for at in range(100):
        world.submit(*(work(f"s{at}-{turn}", "a", 1, world.now) for turn in range(2)))
        world.step()
        small = [each for each in world.running.values() if each.workload.project == "a" and not each.terminating]
        world.delete(*[each.workload.id for each in sorted(small, key=lambda each: each.since)[:1]])
        if "first" in world.running:
            assert world.now > NOW + 50, "until then the GPUs are used"
            assert world.held()["b"] == guests * 1000, "nobody else has less"
            return
    raise AssertionError(f"starved: {world.decisions[-1].pending_reasons['first']}")


def test_the_places_of_a_first_that_waits_are_where_its_own_project_runs() -> None:
    """Less is in the way on the other node, but that is another project's, and guaranteed."""
    projects = (project("a", 4), project("b", 4))
    world = World((node("m", 4), node("n", 4)), projects, SchedulerSettings(strict_order_after_s=50), now=NOW)
    world.running["b"] = runs(work("b", "b", 3), on("m", 1, 1, 1))
    for at in range(4):
        world.running[f"a{at}"] = runs(work(f"a{at}", "a", 1), on("n", *[0] * at, 1))
    world.submit(work("first", "a", 4, NOW - 100), work("guest", "b", 1, NOW - 99), work("small", "a", 1, NOW - 99))
    decision = world.step()
    assert [place.node for place in decision.reservations["first"]] == ["n"]
    assert decision.placements["guest"][0].node == "m"
    world.delete("a0")
    world.step()
    decision = world.step()
    assert decision.pending_reasons["small"].cause is Cause.RESERVED
    assert decision.pending_reasons["first"].reason.endswith("room on n is kept for it until it is free")


def test_who_is_guaranteed_passes_over_the_places_of_a_first_that_waits_beyond_its_quota() -> None:
    projects = (project("a", 4), project("b", 4))
    world = World((node("n", 8),), projects, SchedulerSettings(strict_order_after_s=50), now=NOW)
    for at in range(7):
        world.running[f"a{at}"] = runs(work(f"a{at}", "a", 1), on("n", *[0] * at, 1))
    world.submit(work("first", "a", 4, NOW - 100), work("small", "a", 1, NOW - 99))
    decision = world.step()
    assert (set(decision.reservations), set(decision.placements)) == ({"first"}, set())
    world.submit(work("owner", "b", 1, NOW))
    decision = world.step()
    assert (set(decision.placements), decision.reclaims) == ({"owner"}, ())


def test_what_can_be_reclaimed_runs_on_while_the_quota_waits_for_work_that_cannot_be() -> None:
    world = World((node("n", 8),), (project("a", 8),), SchedulerSettings(strict_order_after_s=50), now=NOW)
    world.running["r"] = runs(work("r", "a", 2, preemptible=False), on("n", 1, 1))
    world.submit(work("first", "a", 7, NOW - 100, preemptible=False))
    world.submit(*(work(f"fixed{at}", "a", 1, NOW - 99, preemptible=False) for at in range(3)))
    world.submit(*(work(f"guest{at}", "a", 1, NOW - 99, priority=10) for at in range(5)))
    world.settle()
    assert set(world.running) == {"r", "fixed0", *(f"guest{at}" for at in range(5))}
    world.delete("r")
    world.settle()
    assert "first" in world.running, "it starts as soon as it would have without the one beside it"


@pytest.mark.parametrize(("limit_s", "goes"), [(0, False), (100, True), (101, False)])
def test_what_ends_before_the_first_can_start_uses_the_quota_meanwhile(limit_s: int, goes: bool) -> None:
    world = World((node("n", 8),), (project("a", 8, over_quota=False),), now=NOW)
    world.running["r"] = Running(work("r", "a", 2), (on("n", 1, 1),), 0, ends_at=(NOW + 100) * SECOND)
    world.submit(work("first", "a", 7, NOW - 100), work("other", "a", 4, NOW - 99, limit_s=limit_s))
    assert ("other" in world.step().placements) == goes


def test_a_stream_of_small_ones_does_not_starve_the_first_under_a_hard_cap() -> None:
    world = World((node("n", 8),), (project("a", 8, over_quota=False),), now=NOW)
    world.submit(*(work(f"b{at}", "a", 1, NOW) for at in range(8)))
    world.step()
    world.submit(work("first", "a", 8, NOW))
    check_begins_among_small_ones(world, "first", "a")


def test_shares_come_in_whole_sessions() -> None:
    """4 GPUs by 3:2:1 are 2, 1.33 and 0.67: nobody can take the third of a session."""
    weights = {"a": 3, "b": 2, "c": 1}
    world = World((node("n", 4),), tuple(project(name, 0, weight=weight) for name, weight in weights.items()), now=NOW)
    world.submit(*(work(f"a{at}", "a", 1, NOW) for at in range(4)))
    world.settle()
    world.submit(*(work(f"{name}{at}", name, 1, NOW + 9) for name in "bc" for at in range(4)))
    world.settle()
    assert world.held() == {"a": 2000, "b": 1000, "c": 1000}


def test_one_larger_than_what_is_beyond_the_fair_share_goes_where_it_has_no_right_to_come_back() -> None:
    world = World((node("n", 4),), (project("a", 0, weight=1), project("b", 0, weight=1)), now=NOW)
    world.running["large"] = runs(work("large", "b", 3), on("n", 1, 1, 1))
    world.submit(*(work(f"{name}{at}", name, 1, NOW) for name in "ab" for at in range(2)))
    assert world.settle() == ["large"]
    assert world.held() == {"a": 2000, "b": 2000}
