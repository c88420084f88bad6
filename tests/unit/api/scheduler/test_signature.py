"""What was tried in vain is not tried again: not for the like of it, and not for what asks for more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.cluster import ClusterState
from api.scheduler.decide import decide
from api.scheduler.shortage import fitting_most, lacking
from api.scheduler.signature import Frontier, manner_of
from api.scheduler.snapshot import NodeSnapshot, Snapshot, Workload
from api.scheduler.victim_search import cheapest
from tests.unit.api.scheduler.test_cluster_properties import ACTIONS, WORK, nodes_of, play
from tests.unit.api.scheduler.world import SECOND, node, on, project, runs, work

MANY = 60


@given(
    nodes=nodes_of(),
    actions=ACTIONS,
    less=WORK,
    beside=st.tuples(*[st.integers(0, 2)] * 3),
    gpu_milli=st.sampled_from([0, 0, 200, 400, 1000, 1700]),
)
def test_what_asks_for_no_less_fits_nowhere_either(
    nodes: tuple[NodeSnapshot, ...],
    actions: list[tuple[Workload, bool]],
    less: Workload,
    beside: tuple[int, int, int],
    gpu_milli: int,
) -> None:
    replicas, cpus, memory = beside
    more = replace(
        less,
        replicas=less.replicas + replicas,
        gpu_milli=less.gpu_milli + gpu_milli,
        cpu_milli=less.cpu_milli + 1000 * cpus,
        memory_mib=less.memory_mib + 100 * memory,
    )
    least, most = Frontier(least=True), Frontier(least=False)
    least.add(less)
    most.add(more)
    assert (more in least) == (less in most) == (manner_of(less) == manner_of(more))
    if more not in least:
        return
    cluster, _ = play(nodes, actions)
    assert cluster.find(less) is not None or cluster.find(more) is None
    empty = ClusterState(nodes)
    assert not nodes or not empty.never_fits(less) or empty.never_fits(more)


@given(known=st.lists(WORK, max_size=6), asked=WORK)
def test_the_extremes_cover_what_any_of_them_does(known: list[Workload], asked: Workload) -> None:
    together = Frontier(least=True)
    alone = []
    for each in known:
        together.add(each)
        one = Frontier(least=True)
        one.add(each)
        alone.append(asked in one)
    assert (asked in together) == any(alone)
    together.clear()
    assert asked not in together


@pytest.mark.parametrize("owners", [1, MANY])
def test_victims_are_looked_for_once_for_all_projects_that_are_within_their_quota(
    monkeypatch: pytest.MonkeyPatch, owners: int
) -> None:
    """Every GPU is in use; the only project beyond its quota has nobody large enough to make room for two GPUs."""
    searches: list[str] = []

    def counting(cluster: Any, residents: Any, workload: Workload, *args: Any) -> Any:
        searches.append(workload.id)
        return cheapest(cluster, residents, workload, *args)

    monkeypatch.setattr("api.scheduler.reclaim.cheapest", counting)
    nodes = tuple(node(f"n{at}", 2) for at in range(4))
    running = tuple(
        runs(work(f"{each.name}-{at}", "guest", preemptible=at > 0), on(each.name, *[0] * at, 1))
        for each in nodes
        for at in range(2)
    )
    projects = (project("guest", 0), *(project(f"p{at:02}", 2) for at in range(owners)))
    queue = tuple(work(f"w{at:02}", f"p{at % owners:02}", 2, 1000, cpu_milli=at) for at in range(MANY))
    decision = decide(Snapshot(1000 * SECOND, nodes, projects, running, queue))
    assert not decision.reclaims
    assert len(decision.pending_reasons) == MANY
    assert len(searches) == 2, "none below its quota, and then with the last passing it"


@pytest.mark.parametrize("gpu_milli", [0, 1000])
@pytest.mark.parametrize("replicas", [1, 2])
def test_requests_of_which_none_covers_another_are_looked_for_no_more_often_than_equal_ones(
    monkeypatch: pytest.MonkeyPatch, gpu_milli: int, replicas: int
) -> None:
    """Each asks for more cores and less memory than the one before, and the node has too little of both."""
    assert searches_of_distinct(monkeypatch, MANY, gpu_milli, replicas) == searches_of_distinct(
        monkeypatch, 2, gpu_milli, replicas
    )


def searches_of_distinct(monkeypatch: pytest.MonkeyPatch, count: int, gpu_milli: int, replicas: int) -> int:
    """How often places are looked for where so many such sessions of one project wait for a node that is in use."""
    searches: list[str] = []
    find, never_fits = ClusterState.find, ClusterState.never_fits

    def finding(cluster: ClusterState, workload: Workload, *args: Any) -> Any:
        searches.append(workload.id)
        return find(cluster, workload, *args)

    def asking(cluster: ClusterState, workload: Workload) -> str:
        searches.append(workload.id)
        return never_fits(cluster, workload)

    nodes = tuple(replace(node(f"n{at}", 2), cpu_milli=10_000, memory_mib=10_000) for at in range(2))
    running = tuple(
        runs(work(each.name, "guest", cpu_milli=9000, memory_mib=9000), on(each.name, 1, 1)) for each in nodes
    )
    queue = tuple(
        replace(
            work(f"w{at:02}", "p", 1, 1000, cpu_milli=2000 + at, memory_mib=3000 - at),
            gpu_milli=gpu_milli,
            replicas=replicas,
        )
        for at in range(count)
    )
    with monkeypatch.context() as patch:
        patch.setattr(ClusterState, "find", finding)
        patch.setattr(ClusterState, "never_fits", asking)
        decision = decide(Snapshot(1000 * SECOND, nodes, (project("guest", 4), project("p", 0)), running, queue))
    assert len(decision.pending_reasons) == count
    return len(searches)


@given(
    nodes=nodes_of(),
    actions=ACTIONS,
    asked=WORK,
    cpu_milli=st.sampled_from([0, 1000, 5000, 50_000]),
    memory_mib=st.sampled_from([0, 100, 1000, 10_000]),
)
def test_what_is_lacking_is_no_more_than_was_asked_for_and_fits_nowhere(
    nodes: tuple[NodeSnapshot, ...],
    actions: list[tuple[Workload, bool]],
    asked: Workload,
    cpu_milli: int,
    memory_mib: int,
) -> None:
    asked = replace(asked, cpu_milli=cpu_milli, memory_mib=memory_mib)
    cluster, _ = play(nodes, actions)
    if cluster.find(asked) is None:
        least, frontier = lacking(cluster.layout, cluster.state, asked), Frontier(least=True)
        frontier.add(least)
        assert asked in frontier
        assert cluster.find(least) is None
    if nodes and not ClusterState(nodes).never_fits(asked):
        most, frontier = fitting_most(cluster.layout, asked), Frontier(least=False)
        assert most
        frontier.add(most)
        assert asked in frontier
        assert not ClusterState(nodes).never_fits(most)
