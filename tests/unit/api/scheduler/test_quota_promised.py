"""The quota that is kept for an older one of a project: who may run in it meanwhile, and that the older one starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api.scheduler.snapshot import Cause, ProjectState, SchedulerSettings, Workload
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

NOW = 200_000
CAPS = [project("a", 8, over_quota=False), project("a", 8, limit_milli=8000)]


def behind_a_tiny_one(owner: ProjectState, waited: int, settings: SchedulerSettings | None = None) -> World:
    """A session of a tenth of a GPU stays for a time that nobody knows; one of all GPUs waits behind it."""
    world = World((node("n", 8),), (owner,), settings or SchedulerSettings(), now=NOW)
    world.running["tiny"] = runs(work("tiny", "a", 0.1), on("n", 0.1))
    world.submit(work("whole", "a", 8, NOW - waited))
    return world


@pytest.mark.parametrize("owner", CAPS)
@pytest.mark.parametrize("waited", [100, 7200])
def test_what_it_may_stop_when_its_turn_comes_runs_in_the_quota_that_is_kept(owner: ProjectState, waited: int) -> None:
    world = behind_a_tiny_one(owner, waited)
    world.submit(*(work(f"low{at}", "a", 1, NOW - 50, priority=10) for at in range(9)))
    assert world.settle() == [], "nobody is stopped as long as that helps nobody"
    assert world.held() == {"a": 7100}
    world.delete("tiny")
    stopped = world.settle()
    assert len(set(stopped)) == len(stopped) == 7, "each once"
    assert set(world.running) == {"whole"}


@pytest.mark.parametrize(
    ("more", "goes"),
    [
        ({"limit_s": 100}, True),
        ({"limit_s": 101}, False),
        ({"priority": 10}, True),
        ({"priority": 10, "preemptible": False}, False),
        ({"priority": 10, "preemptible": False, "limit_s": 100}, True),
        ({}, False),
    ],
)
def test_who_passes_ends_within_the_time_that_was_waited_or_can_be_stopped(more: dict[str, int], *, goes: bool) -> None:
    world = behind_a_tiny_one(CAPS[0], 100)
    world.submit(work("other", "a", 4, NOW - 50, **more))
    decision = world.step()
    assert ("other" in decision.placements) == goes
    assert goes or decision.pending_reasons["other"].cause is Cause.RESERVED


@pytest.mark.parametrize(("least", "goes"), [(100, True), (101, False)])
def test_what_could_be_stopped_only_after_longer_than_was_waited_does_not_pass(least: int, *, goes: bool) -> None:
    world = behind_a_tiny_one(CAPS[0], 100, SchedulerSettings(min_runtime_s=least))
    world.submit(work("low", "a", 4, NOW - 50, priority=10))
    assert ("low" in world.step().placements) == goes


@pytest.mark.parametrize(("gpus", "goes"), [(4, False), (4.2, True)])
def test_of_a_limit_that_is_kept_for_one_larger_than_the_quota_only_what_it_may_stop_has_any(
    gpus: float, *, goes: bool
) -> None:
    """What could be guaranteed is not stopped for what never can be, and this would go beyond the quota."""
    world = behind_a_tiny_one(project("a", 4, limit_milli=8000), 100)
    world.running["other"] = runs(work("other", "a", 3), on("n", 0, 1, 1, 1))
    world.submit(work("low", "a", gpus, NOW - 50, priority=10))
    assert ("low" in world.step().placements) == goes


def stream(world: World, first: str, make: Callable[[str], Workload]) -> None:
    """Others come and end one after another; the tiny one ends in between, and the first begins after that."""
    for at in range(100):
        world.submit(*(make(f"s{at}-{turn}") for turn in range(2)))
        world.step()
        small = [id_ for id_, each in sorted(world.running.items()) if id_ != "tiny" and not each.terminating]
        world.delete(*small[:1])
        if at == 20:
            world.delete("tiny")
        if first in world.running:
            assert at > 20
            return
    raise AssertionError(f"starved: {world.decisions[-1].pending_reasons[first]}")


@pytest.mark.parametrize("least", [0, 30])
@pytest.mark.parametrize("more", [{"priority": 10}, {"limit_s": 40}, {"priority": 10, "limit_s": 40}, {}])
def test_a_stream_of_those_who_pass_does_not_starve_it_once_the_tiny_one_has_ended(
    more: dict[str, int], least: int
) -> None:
    """With a minimum run time the lower ones that began last are stopped after that, and none follow them."""
    world = behind_a_tiny_one(CAPS[0], 100, SchedulerSettings(min_runtime_s=least))
    stream(world, "whole", lambda name: work(name, "a", 1, world.now, **more))


def test_its_lower_ones_do_not_cost_it_the_places_that_it_would_have_reserved() -> None:
    """On each node one of its own stands that it may stop, beside guaranteed ones that end one by one and come anew."""
    world = World(
        tuple(node(f"n{at}", 8) for at in range(4)), (project("a", 8, over_quota=False), project("b", 24)), now=NOW
    )
    for at in range(4):
        world.running[f"low{at}"] = runs(work(f"low{at}", "a", 1, priority=10), on(f"n{at}", 0, 1))
        for gpu in range(2, 8):
            world.running[f"b{at}-{gpu}"] = runs(work(f"b{at}-{gpu}", "b"), on(f"n{at}", *[0] * gpu, 1))
    world.submit(work("whole", "a", 8, NOW - 100), *(work(f"c{at}", "b", 1, NOW) for at in range(8)))
    for at in range(150):
        world.submit(work(f"d{at}", "b", 1, world.now))
        world.step()
        world.now += 30
        others = [id_ for id_, each in sorted(world.running.items()) if id_[0] in "bcd" and not each.terminating]
        world.delete(others[at * 7 % len(others)])
        if "whole" in world.running:
            return
    raise AssertionError(f"starved: {world.decisions[-1].pending_reasons['whole']}")


@pytest.mark.parametrize(("limit_s", "goes"), [(7200, True), (7201, False)])
def test_places_behind_an_equal_one_of_its_own_go_to_what_ends_in_time(limit_s: int, *, goes: bool) -> None:
    """It could never stop that one, so it may stay as long as one that cannot be reclaimed."""
    world = behind_a_tiny_one(project("a", 8), 7200)
    world.submit(work("other", "a", 4, NOW - 50, limit_s=limit_s))
    assert ("other" in world.step().placements) == goes
