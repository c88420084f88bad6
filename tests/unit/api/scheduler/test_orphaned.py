"""GPUs that orphaned containers hold: nothing is placed on them, and they are nobody's fair share."""

from __future__ import annotations

from dataclasses import replace

from api.scheduler.decide import decide
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Cause, Snapshot
from common.gpu.share import GpuShare
from tests.unit.api.scheduler.world import node, on, project, runs, work

HELD = replace(node("held", 2), orphaned=(GpuShare("held-0", 0, 1000), GpuShare("held-1", 1, 300)))
PROJECTS = (project("a", 1), project("b", 1))


def test_only_what_is_left_of_them_is_given_out() -> None:
    queue = (work("whole", "a"), work("part", "b", 0.7))
    found = decide(Snapshot(1000, (HELD,), PROJECTS, (), queue))
    assert found.placements == {"part": (on("held", 0, 0.7),)}
    assert found.pending_reasons["whole"].cause is not Cause.NEVER_FITS, "they are free again one day"


def test_they_are_no_part_of_what_is_shared_out_on_a_closed_node_either() -> None:
    there = runs(work("runs", "a", 0.5), on("held", 0, 0.5))
    for open_, shared_out in ((True, 700), (False, 500)):
        nodes = (replace(HELD, open=open_),)
        assert Planner.of(Snapshot(1000, nodes, PROJECTS, (there,), ())).capacity() == shared_out


def test_a_planner_that_goes_on_takes_them_over_and_gives_them_back() -> None:
    wait = work("waits", "a")
    free = replace(HELD, orphaned=())
    planner = Planner.of(Snapshot(1000, (free,), PROJECTS, (), (wait,)))
    assert planner.decide((wait,), 1000).placements
    planner.set_nodes((HELD,))
    assert not planner.decide((wait,), 1000).placements
    planner.set_nodes((free,))
    assert planner.decide((wait,), 1000).placements
