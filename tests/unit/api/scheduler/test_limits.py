"""Limits above quotas: a project uses what is spare as far as its limit, and nobody waits behind it without an end."""

from __future__ import annotations

import pytest

from api.scheduler.fairness import ProjectDemand, fair_shares, in_whole_workloads
from api.scheduler.snapshot import Cause, GpuState, NodeSnapshot, ProjectState, SchedulerSettings
from common.gpu.kinds import Enforcement
from tests.unit.api.scheduler.world import World, check_begins_among_small_ones, node, on, project, runs, work

NOW = 100_000


def limited(name: str, gpus: float, limit: float, **more: object) -> ProjectState:
    """A project with a quota and a limit above it."""
    return project(name, gpus, limit_milli=round(limit * 1000), **more)


def test_a_project_holds_no_more_than_its_limit_while_gpus_idle() -> None:
    world = World((node("n", 8),), (limited("a", 1, 3),), now=NOW)
    world.submit(*(work(f"a{at}", "a", 1, at) for at in range(5)))
    world.settle()
    assert set(world.running) == {"a0", "a1", "a2"}
    wait = world.decisions[-1].pending_reasons["a3"]
    assert wait.cause is Cause.QUOTA
    assert wait.reason == (
        "a holds 3 GPUs of its limit of 3 GPUs and may not go beyond;"
        " stop one of its sessions, or ask for a larger limit"
    )


def test_what_is_larger_than_the_limit_is_told_so() -> None:
    world = World((node("n", 8),), (limited("a", 1, 3),), now=NOW)
    world.submit(work("large", "a", 4))
    wait = world.step().pending_reasons["large"]
    assert (wait.cause, wait.reason) == (
        Cause.QUOTA,
        "a may hold 3 GPUs, and the session asks for 4 GPUs; ask for fewer or for a larger limit",
    )


def test_work_that_cannot_be_reclaimed_lives_within_the_quota_and_the_limit() -> None:
    world = World((node("n", 8),), (limited("a", 2, 3),), now=NOW)
    fixed = {"preemptible": False}
    world.running |= {f"r{at}": runs(work(f"r{at}", "a", 1), on("n", *[0] * at, 1)) for at in range(2)}
    world.submit(work("f0", "a", 1, 1, **fixed), work("f1", "a", 1, 2, **fixed), work("f2", "a", 3, 3, **fixed))
    waits = world.step().pending_reasons
    assert "f0" not in waits
    assert waits["f1"].reason.startswith("a holds 3 GPUs of its limit of 3 GPUs and may not go beyond")
    assert waits["f2"].reason == (
        "a may hold 2 GPUs by work that cannot be reclaimed, and the session asks for 3 GPUs;"
        " ask for fewer or for a larger quota"
    )


def test_own_work_of_lower_priority_makes_room_below_the_limit() -> None:
    """GPUs are free; it is the limit that is reached."""
    world = World((node("n", 8),), (limited("a", 1, 3),), now=NOW)
    world.running |= {f"r{at}": runs(work(f"r{at}", "a", 1, priority=10), on("n", *[0] * at, 1)) for at in range(3)}
    world.submit(work("urgent", "a", 1, priority=90))
    assert len(world.settle()) == 1
    assert world.held() == {"a": 3000}
    assert "urgent" in world.running


def test_what_a_limit_keeps_from_one_project_is_the_fair_share_of_the_others() -> None:
    world = World((node("n", 8),), (limited("a", 0, 2, weight=3), project("b", 0, weight=1)), now=NOW)
    world.submit(*(work(f"{name}{at}", name, 1, 0) for name in "ab" for at in range(8)))
    world.settle()
    assert world.held() == {"a": 2000, "b": 6000}


@pytest.mark.parametrize(("limit", "share"), [(2.5, 2000), (2, 2000), (1.9, 1000), (9, 4000)])
def test_a_fair_share_is_what_whole_sessions_can_take_below_the_limit(limit: float, share: int) -> None:
    demands = [ProjectDemand(limited("a", 0, limit, weight=1), 8000, unit_milli=1000)]
    assert in_whole_workloads(fair_shares(4000, demands), demands) == {"a": share}


@pytest.mark.parametrize("quota", [0, 2, 4])
def test_a_stream_of_small_ones_does_not_starve_the_first_under_a_limit(quota: int) -> None:
    """Below its limit or its quota the project has room for it only once four of the small ones are gone."""
    world = World((node("n", 16),), (limited("a", quota, 6, weight=1),), now=NOW)
    world.submit(*(work(f"b{at}", "a", 1, NOW) for at in range(6)))
    world.step()
    world.submit(work("first", "a", 4, NOW))
    check_begins_among_small_ones(world, "first", "a")


def test_what_of_the_limit_is_kept_is_told() -> None:
    world = World((node("n", 8),), (limited("a", 1, 4, weight=1),), now=NOW)
    world.running["r"] = runs(work("r", "a", 2), on("n", 1, 1))
    world.submit(work("first", "a", 3, NOW - 100), work("small", "a", 1.5, NOW - 99))
    waits = world.step().pending_reasons
    assert waits["first"].reason.startswith("a holds 2 GPUs of its limit of 4 GPUs and may not go beyond")
    assert waits["small"].cause is Cause.RESERVED
    assert waits["small"].reason == (
        "a holds 2 GPUs of its limit of 4 GPUs and keeps 1 GPU for first of a, served first"
    )


def test_what_is_kept_tells_nobody_how_large_a_private_session_is() -> None:
    world = World((node("n", 8),), (limited("a", 1, 4, weight=1),), now=NOW)
    world.running["r"] = runs(work("r", "a", 2), on("n", 1, 1))
    world.submit(work("first", "a", 3, NOW - 100, private=True), work("small", "a", 1.5, NOW - 99))
    assert world.step().pending_reasons["small"].reason == (
        "a holds 2 GPUs of its limit of 4 GPUs and keeps some for a private session of a, served first"
    )


def test_what_is_guaranteed_does_not_wait_for_what_is_not() -> None:
    """The larger one can never be within the quota; the small one is."""
    world = World((node("n", 8),), (limited("a", 3, 4, weight=1),), now=NOW)
    world.running["r"] = runs(work("r", "a", 2), on("n", 1, 1))
    world.submit(work("large", "a", 4, NOW - 100), work("small", "a", 1, NOW - 99))
    assert set(world.step().placements) == {"small"}


def test_a_larger_one_that_waits_for_the_limit_does_not_keep_the_quota_from_the_next() -> None:
    """The first could never be within the quota; for the second, which could, the quota is kept all the same."""
    world = World((node("n", 16),), (limited("a", 4, 8, weight=1),), SchedulerSettings(reserve_after_s=0), now=NOW)
    world.submit(*(work(f"b{at}", "a", 1, NOW) for at in range(4)))
    world.step()
    world.submit(work("huge", "a", 8, NOW), work("second", "a", 4, NOW, preemptible=False))
    world.submit(*(work(f"s{at}", "a", 1, NOW + 1, preemptible=False) for at in range(2)))
    world.delete("b0")
    world.settle()
    assert "second" not in world.running
    assert not {"s0", "s1"} & set(world.running), world.decisions[-1].pending_reasons


@pytest.mark.parametrize(
    "own",
    [
        project("a", 1, over_quota=False),
        limited("a", 0.5, 1.5),
        limited("a", 0, 1),
        limited("a", 1, 1),
        project("a", 1),
    ],
    ids=["a hard cap", "a limit above the quota", "a limit alone", "a limit at the quota", "no limit"],
)
def test_a_slice_that_nobody_uses_changes_nothing_for_who_makes_room_under_a_limit(own: ProjectState) -> None:
    cut = GpuState(0, "m-0", enforcement=Enforcement.MIG, capacity_milli=500, slice=True)
    world = World((node("n", 1), NodeSnapshot("m", (cut,))), (own,), now=NOW)
    world.submit(work("low", "a", 1, priority=10))
    world.step()
    world.submit(work("high", "a", 1, priority=50))
    assert [reclaim.victim for reclaim in world.step().reclaims] == ["low"]
