"""Tables of quotas, fair shares, priorities, gangs and reservations: who is placed, who loses, who waits and why."""

from __future__ import annotations

import pytest

from api.scheduler.snapshot import Cause
from tests.unit.api.scheduler.tables import NOW, Case, ab, four, judge
from tests.unit.api.scheduler.world import node, on, project, runs, work

QUOTA = {
    "a free place within the quota": Case(four, ab, queue=(work("1", "a"),), placed={"1": "n"}),
    "idle GPUs are used beyond the quota": Case(four, ab, queue=(work("1", "a", 4),), placed={"1": "n"}),
    "a hard cap is not passed": Case(
        four,
        (project("a", 2, over_quota=False), project("b", 2)),
        queue=(work("1", "a"), work("2", "a", at=1), work("3", "a", at=2)),
        placed={"1": "n", "2": "n"},
        waits={"3": Cause.QUOTA},
    ),
    "more than a hard cap never runs, and says so at once": Case(
        four, (project("a", 2, over_quota=False),), queue=(work("1", "a", 3),), waits={"1": Cause.QUOTA}
    ),
    "what cannot be reclaimed stays within the quota": Case(
        four,
        ab,
        queue=(work("1", "a", 2, preemptible=False), work("2", "a", 1, 1, preemptible=False), work("3", "a", 1, 2)),
        placed={"1": "n", "3": "n"},
        waits={"2": Cause.QUOTA},
    ),
    "what may be reclaimed does not stand in the way of what may not": Case(
        four,
        ab,
        (runs(work("r", "a", 2), on("n", 1, 1)),),
        (work("1", "a", 2, preemptible=False),),
        placed={"1": "n"},
    ),
    "work without a GPU needs no quota": Case(
        four, (project("a", 0, over_quota=False),), queue=(work("1", "a", 0),), placed={"1": "n"}
    ),
    "a project that is no more gets nothing": Case(four, ab, queue=(work("1", "gone"),), waits={"1": Cause.QUOTA}),
    "three times a half where two fit (L7)": Case(
        (node("n", 1),),
        (project("a", 1, over_quota=False),),
        queue=(work("1", "a", 0.5), work("2", "a", 0.5, 1), work("3", "a", 0.5, 2)),
        placed={"1": "n", "2": "n"},
        waits={"3": Cause.QUOTA},
    ),
    "the last of its session is being stopped: its quota is free soon": Case(
        four,
        (project("a", 2, over_quota=False),),
        (runs(work("r", "a", 2), on("n", 1, 1), terminating=True),),
        (work("1", "a", 2),),
        waits={"1": Cause.RECLAIMING},
    ),
}

FAIR = {
    "who is beyond its fair share gives to who is below it": Case(
        four,
        (project("a", 0, weight=1), project("b", 0, weight=1)),
        tuple(runs(work(f"r{at}", "b", 1), on("n", *[0] * at, 1), since=at) for at in range(4)),
        (work("1", "a", 1), work("2", "a", 1, 1), work("3", "a", 1, 2)),
        waits={"1": Cause.RECLAIMING, "2": Cause.RECLAIMING, "3": Cause.FAIR_SHARE},
        victims={"r3": "1", "r2": "2"},
    ),
    "nobody goes below its fair share for another's while one that is beyond need not": Case(
        (node("n", 6),),
        (project("a", 0, weight=1), project("b", 0, weight=1), project("c", 0, weight=1)),
        (
            runs(work("r", "b", 3), on("n", 1, 1, 1)),
            *(runs(work(f"c{i}", "c"), on("n", *[0] * i, 1), since=i) for i in (3, 4, 5)),
        ),
        (work("1", "a", 1),),
        waits={"1": Cause.RECLAIMING},
        victims={"c5": "1"},
    ),
    "one that is larger than the fair share of its project goes for another's: it has no right to come back": Case(
        four,
        (project("a", 0, weight=1), project("b", 0, weight=1)),
        (runs(work("r", "b", 4), on("n", 1, 1, 1, 1)),),
        (work("1", "a", 2),),
        waits={"1": Cause.RECLAIMING},
        victims={"r": "1"},
    ),
    "what is within the fair share stays": Case(
        four,
        (project("a", 0, weight=1), project("b", 0, weight=1)),
        (runs(work("r", "b", 2), on("n", 1, 1)), runs(work("s", "a", 2), on("n", 0, 0, 1, 1))),
        (work("1", "a", 2),),
        waits={"1": Cause.FAIR_SHARE},
    ),
    "spare GPUs go by weight": Case(
        (node("n", 6),),
        (project("a", 0, weight=2), project("b", 0, weight=1)),
        queue=tuple(work(f"{name}{at}", name, 1, at) for name in "ab" for at in range(6)),
        placed=dict.fromkeys(("a0", "a1", "a2", "a3", "b0", "b1"), "n"),
        waits=dict.fromkeys(("a4", "a5", "b2", "b3", "b4", "b5"), Cause.FAIR_SHARE),
    ),
    "guarantees go before what is spare": Case(
        (node("n", 2),),
        (project("a", 0), project("b", 1)),
        queue=(work("1", "a"), work("2", "a", 1, 1), work("3", "b", 1, 2)),
        placed={"3": "n", "1": "n"},
        waits={"2": Cause.FAIR_SHARE},
    ),
    "too little for all guarantees: who has least of its own goes first": Case(
        (node("n", 3),),
        (project("a", 3), project("b", 3)),
        (runs(work("r", "a", 1), on("n", 1)),),
        (work("1", "a"), work("2", "b", 1, 1), work("3", "b", 1, 2)),
        placed={"2": "n", "1": "n"},
        waits={"3": Cause.NO_ROOM},
    ),
}

PRIORITY = {
    "the higher priority first, then the older": Case(
        (node("n", 2),),
        (project("a", 2),),
        queue=(work("low", "a", 1, 0, priority=10), work("old", "a", 1, 1), work("young", "a", 1, 2)),
        placed={"old": "n", "young": "n"},
        waits={"low": Cause.FAIR_SHARE},
    ),
    "a higher priority reclaims a lower one of its own project": Case(
        (node("n", 2),),
        (project("a", 2),),
        (
            runs(work("low", "a", 1, priority=10), on("n", 1), since=1),
            runs(work("mid", "a", 1, priority=50), on("n", 0, 1), since=9),
        ),
        (work("high", "a", 1, priority=90),),
        waits={"high": Cause.RECLAIMING},
        victims={"low": "high"},
    ),
    "not of another project": Case(
        (node("n", 1),),
        (project("a", 1), project("b", 1)),
        (runs(work("low", "b", 1, priority=1), on("n", 1)),),
        (work("high", "a", 1, priority=99),),
        waits={"high": Cause.NO_ROOM},
    ),
    "not where there is room": Case(
        (node("n", 2),),
        (project("a", 1),),
        (runs(work("low", "a", 1, priority=10), on("n", 1)),),
        (work("high", "a", 1, priority=90),),
        placed={"high": "n"},
    ),
    "not one of equal priority": Case(
        (node("n", 1),),
        (project("a", 1),),
        (runs(work("r", "a", 1), on("n", 1)),),
        (work("1", "a", 1),),
        waits={"1": Cause.FAIR_SHARE},
    ),
    "within a hard cap even where GPUs are free": Case(
        four,
        (project("a", 1, over_quota=False),),
        (runs(work("low", "a", 1, priority=10), on("n", 1)),),
        (work("high", "a", 1, priority=90),),
        waits={"high": Cause.RECLAIMING},
        victims={"low": "high"},
    ),
    "its own and another's together, where only both make room": Case(
        (node("n", 4),),
        (project("a", 4), project("b", 0)),
        (
            runs(work("low", "a", 2, priority=10), on("n", 1, 1)),
            runs(work("r", "b", 2), on("n", 0, 0, 1, 1)),
        ),
        (work("high", "a", 4, priority=90),),
        waits={"high": Cause.RECLAIMING},
        victims={"low": "high", "r": "high"},
    ),
}

GANGS = {
    "all or nothing": Case(
        (node("m", 1), node("n", 1)),
        (project("a", 4),),
        (runs(work("r", "a", 1), on("m", 1)),),
        (work("gang", "a", 1, NOW - 1, replicas=2), work("one", "a", 1, NOW)),
        placed={"one": "n"},
        waits={"gang": Cause.NO_ROOM},
    ),
    "never fits, and says so at once": Case(
        (node("m", 2), node("n", 2)),
        (project("a", 9),),
        queue=(work("gang", "a", 2, replicas=3), work("wide", "a", 3, 1), work("one", "a", 1, 2)),
        placed={"one": "m"},
        waits={"gang": Cause.NEVER_FITS, "wide": Cause.NEVER_FITS},
    ),
    "no node is open": Case(
        (node("m", 2, open=False),), (project("a", 2),), queue=(work("1", "a"),), waits={"1": Cause.NO_NODE}
    ),
}

RESERVATION = {
    "a large one keeps the node that is nearest to empty, others pass by it": Case(
        (node("m", 4), node("n", 4)),
        (project("a", 4), project("b", 4)),
        (
            runs(work("r1", "b", 1, preemptible=False), on("m", 1)),
            runs(work("r2", "b", 3, preemptible=False), on("n", 1, 1, 1)),
        ),
        (work("large", "a", 4, NOW - 60), work("1", "a", 1, NOW - 1), work("2", "a", 1, NOW)),
        placed={"1": "n"},
        waits={"large": Cause.NO_ROOM, "2": Cause.RESERVED},
    ),
    "not before it waited long enough": Case(
        (node("m", 4), node("n", 4)),
        (project("a", 4), project("b", 4)),
        (
            runs(work("r1", "b", 1, preemptible=False), on("m", 1)),
            runs(work("r2", "b", 3, preemptible=False), on("n", 1, 1, 1)),
        ),
        (work("large", "a", 4, NOW - 59), work("1", "a", 1, NOW - 1), work("2", "a", 1, NOW)),
        placed={"1": "n", "2": "m"},
        waits={"large": Cause.FAIR_SHARE},
    ),
    "what goes beyond its fair share reserves nothing": Case(
        (node("n", 4),),
        (project("a", 0), project("b", 4)),
        (runs(work("r", "b", 1, preemptible=False), on("n", 1)),),
        (work("large", "a", 4, 0), work("1", "b", 1, NOW)),
        placed={"1": "n"},
        waits={"large": Cause.FAIR_SHARE},
    ),
    "a guarantee goes before room that is kept for another's fair share": Case(
        (node("n", 4),),
        (project("a", 0, weight=1), project("b", 2), project("c", 0, weight=1)),
        (runs(work("r", "b", 1, preemptible=False), on("n", 1)),),
        (work("large", "a", 2, 0), work("1", "b", 1, NOW)),
        placed={"1": "n", "large": "n"},
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in QUOTA.items()])
def test_quota(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in FAIR.items()])
def test_fair_shares(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in PRIORITY.items()])
def test_priorities(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in GANGS.items()])
def test_gangs(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in RESERVATION.items()])
def test_reservations(case: Case) -> None:
    judge(case)
