"""Tables of guarantees that are reclaimed: from whom, from whom not, and for whom the room is."""

from __future__ import annotations

import pytest

from api.scheduler.snapshot import Cause, SchedulerSettings
from common.topology import TopologyLevel
from tests.unit.api.scheduler.tables import NOW, Case, ab, four, judge
from tests.unit.api.scheduler.world import node, on, project, runs, work

RECLAIM = {
    "a guarantee is reclaimed from who is beyond its quota": Case(
        four,
        ab,
        tuple(runs(work(f"r{at}", "b", 1), on("n", *[0] * at, 1), since=at) for at in range(4)),
        (work("1", "a", 2),),
        waits={"1": Cause.RECLAIMING},
        victims={"r3": "1", "r2": "1"},
    ),
    "one of two GPUs rather than two of one": Case(
        four,
        ab,
        (
            runs(work("x", "b", 1), on("n", 1), since=9),
            runs(work("y", "b", 1), on("n", 0, 1), since=8),
            runs(work("z", "b", 2), on("n", 0, 0, 1, 1), since=1),
        ),
        (work("1", "a", 2),),
        waits={"1": Cause.RECLAIMING},
        victims={"z": "1"},
    ),
    "a half rather than a whole GPU": Case(
        (node("n", 2),),
        (project("a", 1), project("b", 0)),
        (
            runs(work("whole", "b", 1), on("n", 1), since=9),
            runs(work("half", "b", 0.5), on("n", 0, 0.5), since=1),
            runs(work("other", "b", 0.5), on("n", 0, 0.5), since=0),
        ),
        (work("1", "a", 0.5),),
        waits={"1": Cause.RECLAIMING},
        victims={"half": "1"},
    ),
    "the smaller loss first, whoever came first": Case(
        (node("n", 4),),
        (project("a", 4), project("b", 0), project("c", 0)),
        (runs(work("x", "b", 3), on("n", 1, 1, 1), since=9), runs(work("y", "c", 1), on("n", 0, 0, 0, 1), since=0)),
        (work("1", "a", 1),),
        waits={"1": Cause.RECLAIMING},
        victims={"y": "1"},
    ),
    "nobody within its quota loses": Case(
        four,
        (project("a", 4), project("b", 4)),
        (runs(work("r", "b", 4), on("n", 1, 1, 1, 1)),),
        (work("1", "a", 1),),
        waits={"1": Cause.NO_ROOM},
    ),
    "nobody is reclaimed who would go below its quota while another need not": Case(
        (node("m", 4), node("n", 4)),
        (project("a", 3), project("b", 2), project("c", 0)),
        (runs(work("x", "b", 4), on("m", 1, 1, 1, 1)), runs(work("y", "c", 4), on("n", 1, 1, 1, 1))),
        (work("1", "a", 3),),
        waits={"1": Cause.RECLAIMING},
        victims={"y": "1"},
    ),
    "who is beyond its quota by one large workload loses it if nothing else helps": Case(
        four,
        (project("a", 3), project("b", 1)),
        (runs(work("x", "b", 4), on("n", 1, 1, 1, 1)),),
        (work("1", "a", 3),),
        waits={"1": Cause.RECLAIMING},
        victims={"x": "1"},
    ),
    "what cannot be reclaimed is not": Case(
        four,
        (project("a", 4), project("b", 4)),
        (runs(work("r", "b", 4, preemptible=False), on("n", 1, 1, 1, 1)),),
        (work("1", "a", 1),),
        waits={"1": Cause.NO_ROOM},
    ),
    "not before its minimum run time": Case(
        four,
        ab,
        (runs(work("r", "b", 4), on("n", 1, 1, 1, 1), since=NOW - 59),),
        (work("1", "a", 2),),
        SchedulerSettings(min_runtime_s=60),
        waits={"1": Cause.NO_ROOM},
    ),
    "at its minimum run time": Case(
        four,
        ab,
        (runs(work("r", "b", 4), on("n", 1, 1, 1, 1), since=NOW - 60),),
        (work("1", "a", 2),),
        SchedulerSettings(min_runtime_s=60),
        waits={"1": Cause.RECLAIMING},
        victims={"r": "1"},
    ),
    "nor where the clock was set back by less": Case(
        four,
        ab,
        (runs(work("r", "b", 4), on("n", 1, 1, 1, 1), since=NOW + 59),),
        (work("1", "a", 2),),
        SchedulerSettings(min_runtime_s=60),
        waits={"1": Cause.NO_ROOM},
    ),
    "the clock was set back by an hour": Case(
        four,
        ab,
        (runs(work("r", "b", 4), on("n", 1, 1, 1, 1), since=NOW + 3600),),
        (work("1", "a", 2),),
        SchedulerSettings(min_runtime_s=60),
        waits={"1": Cause.RECLAIMING},
        victims={"r": "1"},
    ),
    "a project's own minimum run time counts": Case(
        four,
        (project("a", 2), project("b", 2, min_runtime_s=61)),
        (runs(work("r", "b", 4), on("n", 1, 1, 1, 1), since=NOW - 60),),
        (work("1", "a", 2),),
        SchedulerSettings(min_runtime_s=60),
        waits={"1": Cause.NO_ROOM},
    ),
    "a project may have none": Case(
        four,
        (project("a", 2, min_runtime_s=61), project("b", 2, min_runtime_s=0)),
        (runs(work("r", "b", 4), on("n", 1, 1, 1, 1), since=NOW),),
        (work("1", "a", 2),),
        SchedulerSettings(min_runtime_s=60),
        waits={"1": Cause.RECLAIMING},
        victims={"r": "1"},
    ),
    "a gang goes as a whole, and only one": Case(
        (node("m", 2), node("n", 2)),
        ab,
        (
            runs(work("gang", "b", 1, replicas=2), on("m", 1), on("n", 1), since=5),
            runs(work("r1", "b", 1), on("m", 0, 1), since=9),
            runs(work("r2", "b", 1), on("n", 0, 1), since=8),
        ),
        (work("1", "a", 1, replicas=2, preemptible=False),),
        waits={"1": Cause.RECLAIMING},
        victims={"gang": "1"},
    ),
    "room that is being freed is enough": Case(
        four,
        ab,
        (runs(work("r", "b", 2), on("n", 1, 1), terminating=True), runs(work("s", "b", 2), on("n", 0, 0, 1, 1))),
        (work("1", "a", 2),),
        waits={"1": Cause.RECLAIMING},
    ),
    "room that is being freed is for the first, the second reclaims its own": Case(
        four,
        (project("a", 2), project("c", 2), project("b", 0)),
        (runs(work("r", "b", 2), on("n", 1, 1), terminating=True), runs(work("s", "b", 2), on("n", 0, 0, 1, 1))),
        (work("1", "a", 2), work("2", "c", 2, 1)),
        waits={"1": Cause.RECLAIMING, "2": Cause.RECLAIMING},
        victims={"s": "2"},
    ),
    "nobody else takes room of which a part is free already": Case(
        four,
        (project("a", 4), project("b", 0), project("c", 0)),
        (runs(work("r", "b", 3), on("n", 0, 1, 1, 1), terminating=True),),
        (work("1", "a", 4, 1), work("2", "c", 1)),
        waits={"1": Cause.RECLAIMING, "2": Cause.RESERVED},
    ),
    "a closed node helps nobody": Case(
        (node("m", 2, open=False), node("n", 2)),
        (project("a", 2), project("b", 0), project("c", 2)),
        (runs(work("x", "b", 2), on("m", 1, 1), since=9), runs(work("y", "c", 2), on("n", 1, 1))),
        (work("1", "a", 2),),
        waits={"1": Cause.NO_ROOM},
    ),
    "a gang below one switch has room made on one node, whatever switch that has": Case(
        (node("n", 2),),
        (project("a", 2), project("b", 0)),
        (runs(work("r", "b", 2), on("n", 1, 1)),),
        (work("1", "a", 1, replicas=2, within=TopologyLevel.SWITCH, within_required=True),),
        waits={"1": Cause.RECLAIMING},
        victims={"r": "1"},
    ),
    "CPU that a victim holds counts too": Case(
        (node("n", 4, cpu_milli=8000),),
        (project("a", 2), project("b", 0)),
        (runs(work("x", "b", 1, cpu_milli=8000), on("n", 1)), runs(work("y", "b", 1), on("n", 0, 1))),
        (work("1", "a", 1, cpu_milli=1000),),
        waits={"1": Cause.RECLAIMING},
        victims={"x": "1"},
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in RECLAIM.items()])
def test_reclaim(case: Case) -> None:
    judge(case)
