"""Pending reasons: why a workload waits, in numbers, with what would help; and the decision log."""

from __future__ import annotations

import pytest

from api.scheduler.claims import Claim, Standing
from api.scheduler.cluster import ClusterState
from api.scheduler.decide import decide
from api.scheduler.ledger import Ledger
from api.scheduler.pending_reasons import PendingWorkload, explain
from api.scheduler.snapshot import (
    Cause,
    GpuState,
    NodeSnapshot,
    PendingReason,
    ProjectState,
    Running,
    SchedulerSettings,
    Snapshot,
    Workload,
)
from common.gpu.kinds import Enforcement
from common.topology import TopologyLevel
from tests.unit.api.scheduler.world import SECOND, World, node, on, project, runs, work

NOW = 1000


def waits(
    nodes: tuple[NodeSnapshot, ...],
    projects: tuple[ProjectState, ...],
    queue: tuple[Workload, ...],
    running: tuple[Running, ...] = (),
) -> dict[str, PendingReason]:
    return dict(decide(Snapshot(NOW * SECOND, nodes, projects, running, queue, SchedulerSettings())).pending_reasons)


two = (node("n", 2),)
full = (runs(work("r", "a", 2), on("n", 1, 1)),)


@pytest.mark.parametrize(
    ("nodes", "projects", "queue", "running", "cause", "reason"),
    [
        pytest.param(
            two,
            (project("a", 1, over_quota=False),),
            work("1", "a", 0.5),
            (runs(work("r", "a", 1), on("n", 1)),),
            Cause.QUOTA,
            "a holds 1 GPU of its quota of 1 GPU and may not go beyond; "
            "stop one of its sessions, or ask for a larger quota",
            id="a hard cap",
        ),
        pytest.param(
            two,
            (project("a", 1, over_quota=False),),
            work("1", "a", 2),
            (),
            Cause.QUOTA,
            "a may hold 1 GPU, and the session asks for 2 GPUs; ask for fewer or for a larger quota",
            id="more than the whole quota",
        ),
        pytest.param(
            two,
            (project("a", 1),),
            work("1", "a", 0.5, preemptible=False),
            (runs(work("r", "a", 1, preemptible=False), on("n", 1)),),
            Cause.QUOTA,
            "a holds 1 GPU of its quota of 1 GPU by work that cannot be reclaimed, and the session asks for "
            "0.5 GPU more; stop one of those, or submit it as preemptible",
            id="work that cannot be reclaimed",
        ),
        pytest.param(
            two,
            (project("a", 1),),
            work("1", "gone", 1),
            (),
            Cause.QUOTA,
            "the project gone is not active; ask its manager or the administrator",
            id="a project that is no more",
        ),
        pytest.param(
            two,
            (project("a", 1),),
            work("1", "a", 1),
            full,
            Cause.FAIR_SHARE,
            "no node has 1 GPU free; every GPU in service that it may use is in use; a holds 2 GPUs, "
            "its fair share is 2 GPUs (quota 1 GPU), "
            "more only while others leave GPUs idle",
            id="beyond the fair share",
        ),
        pytest.param(
            two,
            (project("a", 2), project("b", 2)),
            work("1", "b", 1, NOW),
            (runs(work("r", "a", 0.75), on("n", 0.75)), runs(work("s", "a", 1), on("n", 0, 1))),
            Cause.NO_ROOM,
            "no node has 1 GPU free; largest free piece is 0.25 GPU on n",
            id="no room",
        ),
        pytest.param(
            two,
            (project("a", 2), project("b", 2)),
            work("1", "b", 1, 0),
            (runs(work("r", "a", 0.75), on("n", 0.75)), runs(work("s", "a", 1), on("n", 0, 1))),
            Cause.NO_ROOM,
            "no node has 1 GPU free; every GPU in service that it may use is in use or kept for a session that waits"
            "; room on n is kept for it until it is free",
            id="no room, but places kept",
        ),
        pytest.param(
            two,
            (project("a", 2), project("b", 2)),
            work("1", "b", 1, 0),
            (runs(work("r", "a", 1), on("n", 1)), runs(work("s", "a", 1), on("n", 0, 1))),
            Cause.NO_ROOM,
            "no node has 1 GPU free; every GPU in service that it may use is in use; "
            "room on n is kept for it until it is free",
            id="no room, and what is kept is in use",
        ),
        pytest.param(
            (node("m", 1), node("n", 1)),
            (project("a", 2), project("b", 2)),
            work("1", "b", 1, NOW, replicas=2),
            (runs(work("r", "a", 1), on("n", 1)),),
            Cause.NO_ROOM,
            "2 times 1 GPU are not free together, only 1; largest free piece is 1 GPU on m",
            id="a gang",
        ),
        pytest.param(
            (node("n", 2, open=False),),
            (project("a", 2),),
            work("1", "a"),
            (),
            Cause.NO_NODE,
            "no node is ready; ask the administrator when nodes come back",
            id="no node",
        ),
        pytest.param(
            (
                *(node(name, 2, open=False, mode="maintenance") for name in "klmn"),
                node("o", 2, open=False, mode="draining"),
                node("p", 2, open=False, unhealthy="disk /"),
                node("q", 2, open=False),
            ),
            (project("a", 2),),
            work("1", "a"),
            (),
            Cause.NO_NODE,
            "no node is ready, k, l, m and 1 more are in maintenance, o is being drained, p is unhealthy (disk /)"
            "; ask the administrator when nodes come back",
            id="nodes that administrators keep from new work",
        ),
        pytest.param(
            (node("m", 2), node("n", 2, open=False, mode="maintenance", groups=("red",))),
            (project("a", 2),),
            work("1", "a", groups=("red",), grouped_only=True),
            (),
            Cause.NO_NODE,
            "no node that it may use is ready, n is in maintenance; ask the administrator when nodes come back",
            id="the only node that it may use is in maintenance",
        ),
        pytest.param((), (project("a", 2),), work("1", "a"), (), Cause.NO_NODE, "", id="no nodes at all"),
        pytest.param(
            (*(node(name, 2) for name in "klmn"), node("o", 2, open=False, protocol=2)),
            (project("a", 2),),
            work("1", "a", protocol=2),
            (),
            Cause.NO_NODE,
            "k, l, m and 1 more cannot run what it asks for before the release of the API is installed there"
            "; ask the administrator when that is",
            id="nodes of an earlier release",
        ),
        pytest.param(
            two,
            (project("a", 2), project("b", 1)),
            work("1", "a", 2),
            (runs(work("r", "b", 2), on("n", 1, 1)),),
            Cause.RECLAIMING,
            "a session of another project is still being stopped; room on n is kept for it",
            id="reclaimed",
        ),
    ],
)
def test_reasons(
    nodes: tuple[NodeSnapshot, ...],
    projects: tuple[ProjectState, ...],
    queue: Workload,
    running: tuple[Running, ...],
    cause: Cause,
    reason: str,
) -> None:
    wait = waits(nodes, projects, (queue,), running)[queue.id]
    assert wait.cause is cause
    assert reason in wait.reason
    assert wait.position == 1


def test_what_can_never_run_says_so_at_once_with_its_hint() -> None:
    wait = waits(two, (project("a", 9),), (work("1", "a", 3),), full)["1"]
    assert wait.cause is Cause.NEVER_FITS
    assert "ask for at most" in wait.reason


def test_the_largest_free_piece_is_one_that_a_container_could_have() -> None:
    """One GPU is free in one island, and 0.3 of another in the other: together they are no use within one island."""
    nodes = (node("n", 4, island=2),)
    running = tuple(
        runs(work(f"r{at}", "a", milli), on("n", *[0] * at, milli)) for at, milli in ((1, 1), (2, 0.7), (3, 1))
    )
    asked = work("1", "a", 1.3, NOW, within=TopologyLevel.ISLAND, within_required=True)
    reason = waits(nodes, (project("a", 9),), (asked,), running)["1"].reason
    assert reason == "no node has 1.3 GPUs free; largest free piece is 1 GPU on n"


@pytest.mark.parametrize(("gpus", "in_part"), [(3, ""), (2.5, " in part")])
def test_gpus_that_are_kept_are_not_said_to_be_in_use(gpus: float, in_part: str) -> None:
    """One of three is in use for a time that nobody knows, and the other two are kept for the older one.

    Who asks for a part may not use the node that has none to share: what is held there is not why it waits.
    """
    nodes = (node("m", 1, fractions=False), node("n", 3))
    queue = (work("older", "a", gpus, 0), work("younger", "b", gpus, NOW))
    stay = work("m", "c", preemptible=False), work("n", "c", preemptible=False)
    running = tuple(runs(each, on(each.id, 1)) for each in stay)
    found = waits(nodes, (project("a", 3), project("b", 3), project("c", 2)), queue, running)
    piece = f"every GPU in service that it may use{in_part} is in use"
    kept = f"no node has {gpus} GPUs free; {piece} or kept for a session that waits"
    quotas = "all quotas come to 8 GPUs and nodes in service have 4 GPUs"
    more = "" if in_part else f"; {quotas}: other projects hold 2 GPUs within what is guaranteed to them"
    assert found["older"].reason == f"{kept}; room on n is kept for it until it is free{more}"
    assert found["younger"].reason.startswith(kept)


@pytest.mark.parametrize(
    ("reader", "whom"), [("a", "large of a with 2 GPUs"), ("b", "a session of another project")], ids=["own", "other"]
)
def test_room_that_is_kept_names_whom_for_to_people_of_that_project(reader: str, whom: str) -> None:
    queue = (work("large", "a", 2, 0), work("small", reader, 1, NOW))
    running = (runs(work("r", "c", 1, preemptible=False), on("n", 1)),)
    found = waits(two, (project("a", 3), project("b", 2), project("c", 1)), queue, running)
    assert found["small"] == PendingReason(Cause.RESERVED, f"the room that is free is kept for {whom}, served first", 2)


@pytest.mark.parametrize(
    ("others", "whom"),
    [
        pytest.param((), "2 others with 4 GPUs", id="all are seen"),
        pytest.param(("b",), "2 others", id="the other one is of another project"),
        pytest.param(("b", "c"), "2 others", id="neither is seen, of whom one may be the reader's"),
    ],
)
def test_what_several_have_tells_nobody_how_large_the_one_is_that_is_not_seen(
    others: tuple[str, ...], whom: str
) -> None:
    cluster, claims = ClusterState((node("m", 2), node("n", 2))), []
    for owner, where in zip([*("a",) * (2 - len(others)), *others], ("m", "n"), strict=True):
        claim = Claim(work(f"of {owner} on {where}", owner, 2), Standing.DEFERRED, (on(where, 1, 1),))
        cluster.allocate(claim.places, claim.workload)
        claims.append(claim)
    gang = PendingWorkload(work("gang", "a", 2, replicas=2))
    ledger = Ledger.of({"a": project("a", 4)}, {})
    reason = explain(cluster, ledger, [gang], claims)["gang"].reason
    assert reason == f"the room that is free is kept for {whom}, served first"


def test_a_private_workload_is_named_to_its_owner_and_in_the_log_alone() -> None:
    running = (runs(work("r", "c", 1, preemptible=False), on("n", 1)),)
    projects = (project("a", 3), project("b", 2), project("c", 1))
    queue = (work("large", "a", 2, 0, private=True), work("small", "a", 1, NOW))
    decision = decide(Snapshot(NOW * SECOND, two, projects, running, queue, SchedulerSettings()))
    reason = decision.pending_reasons["small"].reason
    assert reason == "the room that is free is kept for a private session of a, served first"
    assert any(line.startswith("waits: large of a: ") for line in decision.log)


def test_the_position_is_the_order_in_which_they_are_served() -> None:
    queue = tuple(work(id_, owner, 2, at) for id_, owner, at in [("x", "b", 1), ("y", "a", 2), ("z", "a", 0)])
    found = waits(two, (project("a", 0), project("b", 0)), queue, full)
    assert {id_: wait.position for id_, wait in found.items()} == {"x": 1, "z": 2, "y": 3}, "who has least is first"


def test_each_decision_has_one_line_with_its_reason() -> None:
    nodes = (node("n", 2),)
    projects = (project("a", 1), project("b", 1))
    running = (runs(work("r", "b", 1), on("n", 1), since=1), runs(work("s", "b", 1), on("n", 0, 1), since=2))
    queue = (work("1", "a"), work("2", "a", 1, 1), work("cpu", "b", 0))
    idle = (
        "a holds 0 GPU and gets 1 GPU more, its fair share is 1 GPU (quota 1 GPU), "
        "more only while others leave GPUs idle"
    )
    assert decide(Snapshot(NOW * SECOND, nodes, projects, running, queue)).log == (
        (
            "reclaimed: s of b for 1 of a: b holds 2 GPUs, 1 GPU of them beyond its quota; "
            "a session of another project is within its quota"
        ),
        "waits: 1 of a: a session of another project is still being stopped; room on n is kept for it",
        "placed: cpu of b on n: b holds 1 GPU of its quota of 1 GPU",
        f"waits: 2 of a: no node has 1 GPU free; every GPU in service that it may use is in use; {idle}",
    )


def two_with_more_quota_than_there_is() -> World:
    """Each of two projects may have all of a node of 4 GPUs, and each has 2, of which nobody can be stopped."""
    world = World((node("n", 4),), (project("a", 4), project("b", 4)), now=1000)
    for owner, shares in (("a", (1, 1, 0, 0)), ("b", (0, 0, 1, 1))):
        world.running[f"{owner}-runs"] = runs(work(f"{owner}-runs", owner, 2, preemptible=False), on("n", *shares))
    return world


def test_who_is_within_its_quota_is_not_told_to_be_beyond_its_fair_share() -> None:
    world = two_with_more_quota_than_there_is()
    world.submit(work("more", "a", 1, 1000))
    wait = world.step().pending_reasons["more"]
    assert wait.cause is Cause.NO_ROOM
    assert wait.reason == (
        "no node has 1 GPU free; every GPU in service that it may use is in use; all quotas come to 8 GPUs and nodes "
        "in service have 4 GPUs: other projects hold 2 GPUs within what is guaranteed to them"
    )


def test_who_waits_for_the_order_of_its_own_project_is_told_so_and_nothing_of_a_fair_share() -> None:
    world = two_with_more_quota_than_there_is()
    world.submit(work("first", "a", 2, 0), work("second", "a", 1, 1000))
    wait = world.step().pending_reasons["second"]
    assert wait.cause is Cause.RESERVED
    assert wait.reason == (
        "no node has 1 GPU free; every GPU in service that it may use is in use; a holds 2 GPUs of its quota of 4 GPUs "
        "and keeps 2 GPUs for first of a, served first"
    )


def test_a_gang_is_told_how_many_of_its_containers_there_is_room_for() -> None:
    wait = waits((node("m", 8), node("n", 4)), (project("a", 20),), (work("g", "a", 4, replicas=4),))
    assert wait["g"].cause is Cause.NEVER_FITS
    nodes, busy = (node("m", 8), node("n", 8)), (runs(work("r", "a", 4), on("n", 1, 1, 1, 1)),)
    reason = waits(nodes, (project("a", 20),), (work("g", "a", 4, NOW, replicas=4),), busy)["g"].reason
    assert reason == "4 times 4 GPUs are not free together, only 3; largest free piece is 8 GPUs on m"


def test_who_wants_no_slice_is_told_of_none_that_is_free() -> None:
    home = sliced_node("m")
    asks = work("w", "a", 0.5, NOW, on_slices=False)
    reason = waits((home,), (project("a", 20),), (asks,), (runs(work("r", "a", 1), on("m", 1)),))["w"].reason
    assert reason == "no node has 0.5 GPU free; every GPU in service that it may use is in use"


def sliced_node(name: str) -> NodeSnapshot:
    """A node with a GPU, and half of another one as a slice."""
    slice_ = GpuState(1, f"{name}-1", enforcement=Enforcement.MIG, capacity_milli=500, slice=True)
    return NodeSnapshot(name, (GpuState(0, f"{name}-0"), slice_))
