"""Reclaim on up to three nodes against every set of victims that there is: it takes a smallest one, if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.cluster import ClusterState
from api.scheduler.decide import decide
from api.scheduler.fairness import ProjectDemand, fair_shares, in_whole_workloads
from api.scheduler.ledger import Ledger
from api.scheduler.snapshot import Cause, NodeSnapshot, Placement, ProjectState, Running, Snapshot, Workload
from api.scheduler.victims import rank
from common.topology import TopologyLevel
from tests.unit.api.scheduler.world import check, held, node, on, project, runs, work

GPUS = 4
HELD = 1_000 * 1_000_000


def filled(nodes: tuple[NodeSnapshot, ...], wanted: list[Workload]) -> tuple[Running, ...]:
    """Let the workloads run where they fit, one after the other; what does not fit is left out."""
    cluster = ClusterState(nodes)
    running: list[Running] = []
    for at, workload in enumerate(wanted):
        places = cluster.find(workload)
        if places:
            cluster.allocate(places, workload)
            running.append(runs(workload, *places, since=at))
    return tuple(running)


def fits_without(nodes: tuple[NodeSnapshot, ...], running: tuple[Running, ...], gone: set[str], new: Workload) -> bool:
    cluster = ClusterState(nodes)
    for each in running:
        if each.workload.id not in gone:
            cluster.allocate(each.placements, each.workload)
    return cluster.find(new) is not None


def sets(candidates: list[Running]) -> Iterator[tuple[Running, ...]]:
    for count in range(1, len(candidates) + 1):
        yield from combinations(candidates, count)


def allowed(victims: tuple[Running, ...], beyond: dict[str, int], *, last_may_pass: bool) -> bool:
    """Whether the victims can be taken one after the other, each from a project beyond its line."""
    for name in {each.workload.project for each in victims}:
        taken = [each.workload.total_milli for each in victims if each.workload.project == name]
        limit = beyond.get(name, 0)
        if limit <= 0 or (sum(taken) - max(taken) >= limit if last_may_pass else sum(taken) > limit):
            return False
    return True


def smallest(
    nodes: tuple[NodeSnapshot, ...],
    running: tuple[Running, ...],
    new: Workload,
    beyond: dict[str, int],
    *,
    is_fair: bool,
) -> tuple[int, int] | None:
    """The fewest milli-GPU, then the fewest victims, of every set that there is; below a line only last.

    For a fair share nobody goes below the line but of those that came last, which have more than it together.
    """
    candidates = [each for each in running if each.workload.preemptible and each.workload.project != new.project]
    for last_may_pass in (False, True):
        if last_may_pass and is_fair:
            candidates = [each for each in candidates if _came_last(each, running, beyond)]
        found = [
            rank(victims)[:2]
            for victims in sets(candidates)
            if allowed(victims, beyond, last_may_pass=last_may_pass)
            and fits_without(nodes, running, {each.workload.id for each in victims}, new)
        ]
        if found:
            return min(found)
    return None


def _came_last(one: Running, running: tuple[Running, ...], beyond: dict[str, int]) -> bool:
    """Whether those of its project that came later are not all that it has beyond its line."""
    name, age = one.workload.project, (one.since, one.workload.submitted_at)
    later = [each for each in running if each.workload.project == name]
    later = [each for each in later if (each.since, each.workload.submitted_at) > age]
    return sum(each.workload.total_milli for each in later) < beyond[name]


shares_of = st.sampled_from([250, 500, 750, 1000, 1000, 1500, 2000, 3000, 4000])
others_of = st.lists(
    st.tuples(st.sampled_from("bc"), shares_of, st.integers(1, 2), st.sampled_from([True, True, True, False])),
    min_size=4,
    max_size=8,
)


def cluster_of(count: int) -> tuple[NodeSnapshot, ...]:
    return tuple(node(f"n{index}", GPUS, island=2, switch=f"s{index // 2}") for index in range(count))


def run_of(rows: list[tuple[str, int, int, bool]]) -> list[Workload]:
    return [
        work(f"w{at}", owner, milli / 1000, at, replicas=replicas, preemptible=preemptible)
        for at, (owner, milli, replicas, preemptible) in enumerate(rows)
    ]


@given(
    count=st.integers(1, 3),
    rows=others_of,
    quotas=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    milli=shares_of,
    replicas=st.integers(1, 3),
    level=st.sampled_from([None, TopologyLevel.ISLAND, TopologyLevel.NODE, TopologyLevel.SWITCH]),
)
def test_quota_is_taken_back_with_the_smallest_set(
    count: int,
    rows: list[tuple[str, int, int, bool]],
    quotas: tuple[int, int],
    milli: int,
    replicas: int,
    level: TopologyLevel | None,
) -> None:
    nodes = cluster_of(count)
    running = filled(nodes, run_of(rows))
    projects = (project("a", 100), project("b", quotas[0] / 2), project("c", quotas[1] / 2))
    more = {"within": level, "within_required": True} if level else {}
    new = work("new", "a", milli / 1000, 100, replicas=replicas, **more)
    snapshot = Snapshot(HELD, nodes, projects, running, (new,))
    judge(snapshot, new, {item.name: held(running, projects)[item.name] - item.quota_milli for item in projects})


def test_who_passes_the_line_may_be_the_first_that_the_search_takes() -> None:
    """`big` alone passes the line; of what can go beside it the search comes to what is of no use first."""
    running = (
        runs(work("big", "b", 1.8), on("n0", 1, 0.8)),
        runs(work("no-use", "b", 0.4), on("n0", 0, 0, 0, 0.4)),
        runs(work("stays", "c", 0.5, preemptible=False), on("n0", 0, 0, 0, 0.5)),
        runs(work("whole", "b"), on("n0", 0, 0, 1)),
    )
    projects = project("a", 3), project("b", 1.9), project("c", 0.5)
    new = work("new", "a", 3, 100)
    snapshot = Snapshot(HELD, cluster_of(1), projects, running, (new,))
    beyond = {item.name: held(running, projects)[item.name] - item.quota_milli for item in projects}
    judge(snapshot, new, beyond)
    assert {reclaim.victim for reclaim in decide(snapshot).reclaims} == {"big", "whole"}


@given(count=st.integers(1, 3), rows=others_of, milli=shares_of, weights=st.tuples(*[st.integers(1, 4)] * 3))
def test_a_fair_share_is_taken_back_with_the_smallest_set(
    count: int, rows: list[tuple[str, int, int, bool]], milli: int, weights: tuple[int, int, int]
) -> None:
    nodes = cluster_of(count)
    preemptible = [(owner, size, replicas, True) for owner, size, replicas, _ in rows]
    running = filled(nodes, run_of(preemptible))
    projects = tuple(ProjectState(name, 0, weight=weight) for name, weight in zip("abc", weights, strict=True))
    new = work("new", "a", milli / 1000, 100)
    snapshot = Snapshot(HELD, nodes, projects, running, (new,))
    fair = _fair(snapshot)
    if new.total_milli > fair["a"]:
        return
    beyond = {name: milli - fair[name] for name, milli in held(running, projects).items()}
    judge(snapshot, new, beyond, is_fair=True)


def judge(snapshot: Snapshot, new: Workload, beyond: dict[str, int], *, is_fair: bool = False) -> None:
    """Compare a decision about one new workload with the best one."""
    decision = decide(snapshot)
    check(snapshot, decision)
    if fits_without(snapshot.nodes, snapshot.running, set(), new):
        assert new.id in decision.placements
        assert not decision.reclaims, "nobody is reclaimed for nothing"
        return
    best = smallest(snapshot.nodes, snapshot.running, new, beyond, is_fair=is_fair)
    taken = {reclaim.victim for reclaim in decision.reclaims}
    victims = [each for each in snapshot.running if each.workload.id in taken]
    if best is None:
        assert not taken
        return
    assert decision.pending_reasons[new.id].cause is Cause.RECLAIMING
    assert rank(victims)[:2] == best, f"took {sorted(taken)}"
    assert fits_without(snapshot.nodes, snapshot.running, taken, new)
    for spared in taken:
        assert not fits_without(snapshot.nodes, snapshot.running, taken - {spared}, new), f"{spared} was not needed"


def _fair(snapshot: Snapshot) -> dict[str, int]:
    demand = held(snapshot.running, snapshot.projects)
    for workload in snapshot.queue:
        if not ClusterState(snapshot.nodes).never_fits(workload):
            demand[workload.project] += workload.total_milli
    capacity = sum(len(item.gpus) for item in snapshot.nodes) * 1000
    had = held(snapshot.running, snapshot.projects)
    able = [each.workload for each in snapshot.running]
    able += [item for item in snapshot.queue if not ClusterState(snapshot.nodes).never_fits(item)]
    units = {name: gcd(*(item.total_milli for item in able if item.project == name)) or 1 for name in had}
    demands = [ProjectDemand(item, demand[item.name], had[item.name], units[item.name]) for item in snapshot.projects]
    return dict(in_whole_workloads(fair_shares(capacity, demands), demands))


@pytest.mark.parametrize("seed", range(3))
def test_of_equal_sets_the_youngest_of_the_lowest_priority_goes(seed: int) -> None:
    nodes = (node("n0", 4),)
    ages = [(4, 50), (9, 70), (7, 50), (5, 60)]
    ages = ages[seed:] + ages[:seed]
    running = tuple(
        runs(work(f"w{at}", "b", priority=priority), filled_place, since=at)
        for (at, priority), filled_place in zip(ages, _places(nodes), strict=True)
    )
    decision = decide(Snapshot(HELD, nodes, (project("a", 4), project("b", 0)), running, (work("new", "a", at=100),)))
    assert [reclaim.victim for reclaim in decision.reclaims] == ["w7"]


def _places(nodes: tuple[NodeSnapshot, ...]) -> list[Placement]:
    return [on(nodes[0].name, *([0] * index), 1) for index in range(4)]


def test_the_ledger_has_a_place_for_a_project_that_is_no_more() -> None:
    ledger = Ledger.of({}, {})
    assert ledger.project("gone").quota_milli == 0
    assert not ledger.project("gone").over_quota
