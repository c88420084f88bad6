"""MIG devices are slices: each goes whole to one container that asks for no more; kinds of enforcement are kept to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.cluster import ClusterState
from api.scheduler.decide import decide
from api.scheduler.planner import Planner
from api.scheduler.snapshot import (
    Cause,
    Decision,
    NodeSnapshot,
    Placement,
    ProjectState,
    Running,
    Snapshot,
    Workload,
    taking,
)
from common.gpu.kinds import Enforcement
from common.gpu.share import GpuShare
from tests.unit.api.scheduler.world import SECOND, World, node, on, project, runs, sliced, work

NOW = 1000
FIRM = Enforcement.MIG


def judge(
    nodes: tuple[NodeSnapshot, ...],
    *queue: Workload,
    running: tuple[Running, ...] = (),
    projects: tuple[ProjectState, ...] = (project("a", 8),),
) -> Decision:
    return decide(Snapshot(NOW * SECOND, nodes, projects, running, queue))


def taken(decision: Decision, id_: str) -> dict[str, int]:
    """What a workload was given: milli-GPU by device."""
    return {share.uuid: share.milli for place in decision.placements[id_] for share in place.shares}


PLACES = {
    "a part takes the smallest slice that is large enough, and all of it": (
        (sliced("n", 571, 142, 285),),
        work("w", "a", 0.2),
        {"n-2": 285},
    ),
    "the smallest slice of the whole cluster": (
        (sliced("m", 571), sliced("n", 285)),
        work("w", "a", 0.25),
        {"n-0": 285},
    ),
    "a slice rather than to open a GPU": ((sliced("n", 285, gpus=2),), work("w", "a", 0.2), {"n-2": 285}),
    "a shared GPU where no slice is large enough": (
        (sliced("n", 142, gpus=1),),
        work("w", "a", 0.2),
        {"n-0": 200},
    ),
    "whole GPUs pass by slices, even by one that is as large": (
        (sliced("m", 1000), sliced("n", gpus=1)),
        work("w", "a", 1),
        {"n-0": 1000},
    ),
    "two and a half GPUs are two whole ones and a half, never a slice": (
        (sliced("n", 571, gpus=3),),
        work("w", "a", 2.5),
        {"n-0": 500, "n-1": 1000, "n-2": 1000},
    ),
    "slices are given out where GPUs cannot be shared": (
        (sliced("n", 285, gpus=1, fractions=False),),
        work("w", "a", 0.25),
        {"n-1": 285},
    ),
    "a kind or a stronger one": (
        (sliced("m", gpus=1, held=Enforcement.NONE), sliced("n", gpus=1)),
        work("w", "a", 0.5, enforcement=Enforcement.MPS),
        {"n-0": 500},
    ),
    "on one node the GPUs that hold shares well enough": (
        (sliced("n", 571, gpus=1),),
        work("w", "a", 0.5, enforcement=FIRM),
        {"n-1": 571},
    ),
    "whole GPUs of a kind as well": (
        (sliced("m", gpus=1, held=Enforcement.NONE), sliced("n", gpus=1, held=Enforcement.DRIVER)),
        work("w", "a", 1, enforcement=Enforcement.DRIVER),
        {"n-0": 1000},
    ),
}


@pytest.mark.parametrize(("nodes", "workload", "expected"), PLACES.values(), ids=PLACES.keys())
def test_where_it_goes(nodes: tuple[NodeSnapshot, ...], workload: Workload, expected: dict[str, int]) -> None:
    decision = judge(nodes, workload)
    assert taken(decision, "w") == expected
    assert judge(nodes[::-1], workload) == decision


NEVER = {
    "a whole GPU where all are cut": (
        (sliced("n", 285, 285),),
        work("w", "a", 1),
        "no node that it may use has a GPU as a whole, only slices; ask for a part of a GPU",
    ),
    "more than any slice": (
        (sliced("n", 142, 285, fractions=False),),
        work("w", "a", 0.5),
        "the largest slice that it may use is 0.285 GPU, and no GPU can be shared; ask for at most that",
    ),
    "a kind that no node has": (
        (sliced("n", gpus=2),),
        work("w", "a", 0.5, enforcement=FIRM),
        (
            "no GPU that it may use holds shares by mig or better, the best is shim"
            "; ask for shim, or choose another resource group"
        ),
    ),
    "more GPUs of a kind than a node has": (
        (sliced("n", gpus=1), sliced("m", gpus=4, held=Enforcement.NONE)),
        work("w", "a", 2, enforcement=Enforcement.SHIM),
        (
            "one container asks for 2 GPUs and the largest node that it may use has 1 GPU"
            "; ask for at most that in a container"
        ),
    ),
}


@pytest.mark.parametrize(("nodes", "workload", "reason"), NEVER.values(), ids=NEVER.keys())
def test_why_it_can_never_run(nodes: tuple[NodeSnapshot, ...], workload: Workload, reason: str) -> None:
    wait = judge(nodes, workload).pending_reasons["w"]
    assert (wait.cause, wait.reason) == (Cause.NEVER_FITS, reason)


def test_a_slice_that_is_taken_has_no_room_left() -> None:
    nodes = (sliced("n", 571, fractions=False),)
    there = Running(work("r", "a", 0.1, held_milli=571), (Placement("n", (GpuShare("n-0", 0, 571),)),), 0)
    wait = judge(nodes, work("w", "a", 0.1), running=(there,)).pending_reasons["w"]
    assert wait.cause is Cause.NO_ROOM
    assert wait.reason.startswith("no node has 0.1 GPU free; every GPU in service that it may use is in use")


def test_who_waits_is_told_how_shares_have_to_be_held() -> None:
    nodes = (node("m", 4), sliced("n", gpus=1))
    there = runs(work("r", "a"), on("n", 1))
    wait = judge(nodes, work("w", "a", 0.5, enforcement=Enforcement.SHIM), running=(there,)).pending_reasons["w"]
    assert wait.reason.startswith(
        "no node has 0.5 GPU held by shim or better free; every GPU in service that it may use is in use"
    )


def test_nodes_of_the_kind_that_are_away_are_not_passed_over_in_silence() -> None:
    nodes = (node("m", 4), sliced("n", gpus=1, open=False))
    wait = judge(nodes, work("w", "a", 0.5, enforcement=Enforcement.SHIM)).pending_reasons["w"]
    assert wait.reason == (
        "no node has 0.5 GPU held by shim or better free; no node with a GPU held by shim or better is ready"
        "; free on nodes out of service: 1 GPU (n); ask the administrator when they come back"
    )


def test_a_gang_takes_a_slice_for_each_container() -> None:
    decision = judge((sliced("n", 142, 285, 285, 571, gpus=1),), work("w", "a", 0.25, replicas=4))
    assert taken(decision, "w") == {"n-2": 285, "n-3": 285, "n-4": 571, "n-0": 250}


def test_the_quota_is_charged_with_the_whole_slice() -> None:
    """0.2 would fit beside what runs, but the slice that it would get would not."""
    nodes = (sliced("n", 571, 571, fractions=False),)
    there = Running(work("r", "a", 0.2, held_milli=571), (Placement("n", (GpuShare("n-0", 0, 571),)),), 0)
    capped = (project("a", 1, over_quota=False),)
    wait = judge(nodes, work("w", "a", 0.2), running=(there,), projects=capped).pending_reasons["w"]
    assert wait.cause is Cause.QUOTA
    assert wait.reason.startswith("a holds 0.571 GPU of its quota of 1 GPU")


def test_a_shared_gpu_where_the_quota_does_not_bear_a_slice() -> None:
    nodes = (sliced("n", 571, gpus=1),)
    decision = judge(nodes, work("w", "a", 0.2), projects=(project("a", 0.5, over_quota=False),))
    assert taken(decision, "w") == {"n-0": 200}


def test_two_of_one_cycle_are_charged_as_they_are_placed() -> None:
    nodes = (sliced("n", 571, 571, fractions=False),)
    decision = judge(nodes, work("v", "a", 0.2), work("w", "a", 0.2, 1), projects=(project("a", 1, over_quota=False),))
    assert taken(decision, "v") == {"n-0": 571}
    assert decision.pending_reasons["w"].cause is Cause.QUOTA


def test_capacity_counts_slices_by_what_they_are() -> None:
    planner = Planner([sliced("m", 571, 285, gpus=1), sliced("n", 142, open=False)])
    assert planner.capacity() == 1856
    busy = Running(work("r", "a", 0.1, held_milli=142), (Placement("n", (GpuShare("n-0", 0, 142),)),), 0)
    planner.add(busy)
    assert planner.capacity() == 1856 + 142


def test_a_slice_is_taken_back_as_a_whole() -> None:
    nodes = (sliced("n", 285, fractions=False),)
    there = Running(work("r", "b", 0.1, held_milli=285), (Placement("n", (GpuShare("n-0", 0, 285),)),), 0)
    decision = judge(nodes, work("w", "a", 0.25), running=(there,), projects=(project("a", 1), project("b", 0)))
    assert [(each.victim, each.beneficiary) for each in decision.reclaims] == [("r", "w")]


def test_a_slice_that_is_too_small_is_not_taken_back() -> None:
    nodes = (sliced("n", 142, 285, fractions=False),)
    there = tuple(
        Running(work(f"r{at}", owner, 0.1, held_milli=size), (Placement("n", (GpuShare(f"n-{at}", at, size),)),), 0)
        for at, (owner, size) in enumerate((("b", 142), ("a", 285)))
    )
    decision = judge(nodes, work("w", "a", 0.25), running=there, projects=(project("a", 1), project("b", 0)))
    assert decision.reclaims == ()
    assert decision.pending_reasons["w"].cause is Cause.NO_ROOM


sizes_of = st.lists(st.sampled_from([142, 142, 285, 428, 571, 1000]), max_size=5)
kinds_of = st.sampled_from([Enforcement.NONE, Enforcement.NONE, Enforcement.SHIM, Enforcement.MIG, Enforcement.DRIVER])
nodes_of = st.lists(st.tuples(sizes_of, st.integers(0, 3), kinds_of, st.booleans()), min_size=1, max_size=4).map(
    lambda rows: tuple(
        sliced(f"n{at}", *sizes, gpus=gpus, held=held, fractions=fractions)
        for at, (sizes, gpus, held, fractions) in enumerate(rows)
    )
)
work_of = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from([100, 142, 200, 250, 500, 700, 1000, 1500, 2000]),
        st.sampled_from([1, 1, 2, 3]),
        kinds_of,
        st.booleans(),
    ),
    max_size=12,
)
quotas_of = st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans(), st.booleans())


def asked(rows: list[tuple[str, int, int, Enforcement, bool]]) -> list[Workload]:
    return [
        work(f"w{at}", owner, milli / 1000, at, replicas=count, enforcement=kind, preemptible=preemptible)
        for at, (owner, milli, count, kind, preemptible) in enumerate(rows)
    ]


def check_places(nodes: tuple[NodeSnapshot, ...], holders: list[tuple[Workload, tuple[Placement, ...]]]) -> None:
    """Nothing is given away twice, slices go whole and to small work only, and every share is held well enough."""
    devices = {gpu.uuid: gpu for each in nodes for gpu in each.gpus}
    shareable = {gpu.uuid: each.fractions for each in nodes for gpu in each.gpus}
    used: dict[str, list[int]] = {}
    for workload, places in holders:
        assert len(places) == workload.replicas
        for place in places:
            for share in place.shares:
                device = devices[share.uuid]
                used.setdefault(share.uuid, []).append(share.milli)
                assert device.enforcement.rank <= workload.enforcement.rank
                if device.slice:
                    assert share.milli == device.capacity_milli >= workload.gpu_milli < 1000, "a slice goes whole"
                    assert place.shares == (share,)
                elif share.milli < 1000:
                    assert shareable[share.uuid]
            if not devices[place.shares[0].uuid].slice:
                assert sum(share.milli for share in place.shares) == workload.gpu_milli
    for uuid, parts in used.items():
        assert sum(parts) <= devices[uuid].capacity_milli
        assert not devices[uuid].slice or len(parts) == 1


@given(nodes=nodes_of, rows=work_of, quotas=quotas_of)
def test_what_holds_for_every_decision(
    nodes: tuple[NodeSnapshot, ...],
    rows: list[tuple[str, int, int, Enforcement, bool]],
    quotas: tuple[int, int, bool, bool],
) -> None:
    projects = (
        ProjectState("a", quotas[0] * 250, over_quota=quotas[2]),
        ProjectState("b", quotas[1] * 250, over_quota=quotas[3]),
    )
    queue = asked(rows)
    half = len(queue) // 2
    first = decide(Snapshot(0, nodes, projects, (), tuple(queue[:half])))
    running = tuple(
        Running(taking(each, first.placements[each.id]), first.placements[each.id], 0)
        for each in queue[:half]
        if each.id in first.placements
    )
    second = decide(Snapshot(NOW * SECOND, nodes, projects, running, tuple(queue[half:])))
    assert decide(Snapshot(NOW * SECOND, nodes[::-1], projects, running[::-1], tuple(queue[half:][::-1]))) == second
    placed = [(each, second.placements[each.id]) for each in queue if each.id in second.placements]
    check_places(nodes, [*((each.workload, each.placements) for each in running), *placed])
    for each in projects:
        mine = [run.workload for run in running if run.workload.project == each.name]
        mine += [taking(workload, places) for workload, places in placed if workload.project == each.name]
        if not each.over_quota:
            assert sum(item.total_milli for item in mine) <= each.quota_milli, "a hard cap holds, slices counted whole"
        fixed = sum(item.total_milli for item in mine if not item.preemptible)
        assert fixed <= each.quota_milli
    for reclaim in second.reclaims:
        assert reclaim.beneficiary in second.pending_reasons


@given(nodes=nodes_of, rows=work_of)
def test_what_is_held_and_given_back_leaves_what_was_there(
    nodes: tuple[NodeSnapshot, ...], rows: list[tuple[str, int, int, Enforcement, bool]]
) -> None:
    cluster = ClusterState(nodes)
    before = cluster.state.milli.tolist()
    held = []
    for workload in asked(rows):
        room = int(cluster.fitting(workload).sum())
        places = cluster.find(workload)
        assert (places is not None) <= (room >= workload.replicas)
        if places:
            cluster.allocate(places, workload)
            held.append((workload, places))
            assert (cluster.state.milli >= 0).all()
    for workload, places in held:
        cluster.release(places, replace(workload))
    assert cluster.state.milli.tolist() == before


def test_a_slice_that_is_being_freed_for_one_counts_as_a_whole_before_it_has_it() -> None:
    """Else its project would be given more beside it meanwhile than it may have."""
    world = World((sliced("n", 500, gpus=1),), (project("a", 1.2, over_quota=False), project("b", 0)), now=NOW)
    world.running["leaves"] = runs(work("leaves", "b", 0.5), on("n", 0, 0.5))
    world.delete("leaves")
    world.submit(work("first", "a", 0.3, enforcement=FIRM), work("second", "a", 0.75, at=1))
    decision = world.step()
    assert decision.pending_reasons["first"].cause is Cause.RECLAIMING
    assert decision.pending_reasons["second"].reason == (
        "a holds 0 GPU and gets 0.5 GPU more of its quota of 1.2 GPUs and may not go beyond; stop one of its sessions, "
        "or ask for a larger quota"
    )
    world.settle()
    assert world.held() == {"a": 500, "b": 0}


@pytest.mark.parametrize(
    ("sizes", "projects", "each"),
    [
        ((500,), (project("a", 0.3), project("b", 0.3)), 1),
        ((500,) * 4, (project("a", 0.5), project("b", 0.5), project("c", 0.5)), 3),
        ((428,) * 3, (project("a", 0.75), project("b", 0.75)), 3),
        ((142,) * 7, (project("a", 0), project("b", 0)), 7),
    ],
)
def test_slices_are_not_taken_in_turns_by_those_who_would_each_go_beyond(
    sizes: tuple[int, ...], projects: tuple[ProjectState, ...], each: int
) -> None:
    """Who asks for less than a slice is within a line by what it asks for, and beyond it by what it then holds."""
    world = World((sliced("n", *sizes),), projects)
    asked = min(sizes) / 2000
    world.submit(*(work(f"{owner.name}{at}", owner.name, asked) for owner in projects for at in range(each)))
    assert world.settle() == []
    assert sum(world.held().values()) == sum(sizes)


@pytest.mark.parametrize("asked", [0.25, 0.5])
def test_a_slice_is_reserved_for_nobody_whose_project_may_not_have_it(asked: float) -> None:
    """Small work of its project leaves less than a slice of its cap: that is kept for it, and the slice for nobody."""
    world = World(
        (sliced("s", 500, groups=("cut",)), node("n", 1, groups=("whole",))),
        (project("a", 0.5, over_quota=False), project("b", 1)),
    )
    world.submit(work("waits", "a", asked, groups=("cut",)))
    world.running["before"] = replace(
        runs(work("before", "b", 0.5, preemptible=False), on("s", 0.5)), ends_at=100 * SECOND
    )
    for minute in range(30):
        world.submit(work(f"small{minute}", "a", 0.125, world.now, groups=("whole",)))
        if minute == 5:
            world.submit(work("other", "b", asked, world.now, groups=("cut",)))
        over = [
            id_
            for id_, one in world.running.items()
            if one.since + 300 * SECOND <= world.now * SECOND and id_ != "before"
        ]
        for id_ in [*over, *(["before"] if world.now >= 100 and "before" in world.running else [])]:
            del world.running[id_]
        world.step()
        world.now += 59
        if "waits" not in world.queue and "other" not in world.queue:
            return
    raise AssertionError(world.decisions[-1].log)


@pytest.mark.parametrize(("limit", "goes"), [(1500, True), (1600, False)])
def test_what_a_slice_makes_larger_than_the_limit_on_any_places_holds_up_nobody(limit: int, *, goes: bool) -> None:
    """Two of its containers go to the GPU, and the third only to a slice of 0.571: it could never start."""
    owner = project("a", 0.5, weight=2, limit_milli=limit)
    world = World((sliced("n", 142, 285, 571, gpus=1),), (owner,), now=NOW)
    world.running["small"] = runs(work("small", "a", 0.5), on("n", 0.5))
    world.submit(work("gang", "a", 0.5, NOW - 100, replicas=3), work("other", "a", 0.5, NOW - 90))
    assert ("other" in world.step().placements) == goes


@pytest.mark.parametrize(
    ("owner", "by_whom"),
    [(project("a", 0.25, over_quota=False), ""), (project("a", 0.25), " by work that cannot be reclaimed")],
)
def test_a_reason_tells_what_is_asked_for_and_what_slices_make_of_it(owner: ProjectState, by_whom: str) -> None:
    world = World((sliced("n", 500),), (owner,))
    world.submit(work("small", "a", 0.25, preemptible=not owner.over_quota))
    assert world.step().pending_reasons["small"].reason == (
        f"a may hold 0.25 GPU{by_whom}, and the session asks for 0.25 GPU (as slices, which count whole, 0.5 GPU); "
        "ask for fewer or for a larger quota"
    )
