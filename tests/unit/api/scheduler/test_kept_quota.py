"""The quota that is kept for an older one of a project: who may run in it meanwhile, and that the older one starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.scheduler.snapshot import Cause, ProjectState
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

NOW = 200_000
CAPS = [project("a", 8, over_quota=False), project("a", 8, limit_milli=8000)]


def behind_a_tiny_one(owner: ProjectState, waited: int = 100, **tiny: int) -> World:
    """A session of a tenth of a GPU stays for a time that nobody knows; one of all GPUs waits behind it."""
    world = World((node("n", 8),), (owner,), now=NOW)
    world.running["tiny"] = runs(work("tiny", "a", 0.1, **tiny), on("n", 0.1))
    world.submit(work("whole", "a", 8, NOW - waited))
    return world


@pytest.mark.parametrize("owner", CAPS)
@pytest.mark.parametrize(("limit_s", "goes"), [(100, True), (101, False), (0, False)])
def test_behind_who_stays_passes_what_ends_within_the_time_that_was_waited(
    owner: ProjectState, limit_s: int, *, goes: bool
) -> None:
    world = behind_a_tiny_one(owner)
    world.submit(work("other", "a", 4, NOW - 50, limit_s=limit_s))
    decision = world.step()
    assert ("other" in decision.placements) == goes
    assert goes or decision.pending_reasons["other"].cause is Cause.RESERVED


@pytest.mark.parametrize("priority", [49, 50])
def test_behind_who_can_be_stopped_for_it_nobody_passes(priority: int) -> None:
    """It could stop that one from some moment on: one after the other would keep it from that."""
    world = behind_a_tiny_one(CAPS[0], priority=priority)
    world.running["large"] = runs(work("large", "a", 0.8, priority=10), on("n", 0.1, 0.8))
    world.submit(work("other", "a", 4, NOW - 50, limit_s=100))
    decision = world.step()
    assert ("other" in decision.placements) == (priority == 50)


def test_where_the_time_is_known_nobody_passes_who_would_still_be_there() -> None:
    """Beside the tiny one there is room for it, once the other one has ended."""
    world = World((node("n", 8),), (CAPS[0],), now=NOW)
    world.running["tiny"] = runs(work("tiny", "a", 0.1), on("n", 0.1))
    ends = runs(work("ends", "a", 6, limit_s=500), on("n", 0, *[1] * 6), since=NOW)
    world.running["ends"] = replace(ends, ends_at=(NOW + 500) * 1_000_000)
    world.submit(work("most", "a", 7, NOW - 4000))
    world.submit(work("other", "a", 1.5, NOW - 50, limit_s=501), work("short", "a", 1.5, NOW - 40, limit_s=500))
    assert list(world.step().placements) == ["short"]


@pytest.mark.parametrize("owner", CAPS)
@pytest.mark.parametrize("limit_s", [40, 5, 600, 0])
def test_a_stream_of_those_who_pass_does_not_starve_it_once_the_tiny_one_has_ended(
    owner: ProjectState, limit_s: int
) -> None:
    world = behind_a_tiny_one(owner)
    ends_at = 0
    for at in range(400):
        world.submit(*(work(f"s{at}-{turn}", "a", 1, world.now, limit_s=limit_s) for turn in range(2)))
        world.step()
        if "whole" in world.running:
            assert ends_at, "not before the tiny one has ended"
            assert world.now <= ends_at + (ends_at - (NOW - 100)) + 10, "twice as long as it had waited at most"
            return
        world.now += 5
        over = [id_ for id_, each in world.running.items() if each.ends_at and each.ends_at <= world.now * 1_000_000]
        world.delete(*over)
        if at == 20:
            world.delete("tiny")
            ends_at = world.now
    raise AssertionError(f"starved: {world.decisions[-1].pending_reasons['whole']}")
