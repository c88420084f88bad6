"""What holds for every cluster, whatever runs and waits on it."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.cluster import ClusterState
from api.scheduler.decide import decide
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Cause, NodeSnapshot, ProjectState, Running, SchedulerSettings, Snapshot, Workload
from common.topology import TopologyLevel
from tests.unit.api.scheduler.world import SECOND, World, check, held, node, project, work

NOW = 100
shares_of = st.sampled_from([0, 100, 250, 500, 700, 1000, 1000, 1500, 2000, 2500, 4000])
workloads_of = st.builds(
    lambda owner, milli, replicas, preemptible, priority, cpu, memory, within, at: {
        "owner": owner,
        "gpus": milli / 1000,
        "at": at,
        "replicas": replicas,
        "preemptible": preemptible,
        "priority": priority,
        "cpu_milli": cpu,
        "memory_mib": memory,
        "within": within or TopologyLevel.ANYWHERE,
        "within_required": within is not None,
    },
    st.sampled_from("abcd"),
    shares_of,
    st.sampled_from([1, 1, 1, 2, 3]),
    st.sampled_from([True, True, False]),
    st.sampled_from([10, 50, 50, 50, 90]),
    st.sampled_from([0, 1000, 4000]),
    st.sampled_from([0, 1024, 8192]),
    st.sampled_from([None, None, None, TopologyLevel.NODE, TopologyLevel.SWITCH, TopologyLevel.ISLAND]),
    st.integers(0, NOW),
)
nodes_of = st.lists(
    st.builds(
        lambda gpus, cpu, memory, switch, is_open: (gpus, cpu, memory, switch, is_open),
        st.integers(0, 4),
        st.sampled_from([0, 8000, 32000]),
        st.sampled_from([0, 16384]),
        st.sampled_from(["", "s1", "s2"]),
        st.sampled_from([True, True, True, False]),
    ),
    min_size=1,
    max_size=4,
).map(
    lambda rows: tuple(
        node(f"n{at}", gpus, island=2, cpu_milli=cpu, memory_mib=memory, switch=switch, open=is_open)
        for at, (gpus, cpu, memory, switch, is_open) in enumerate(rows)
    )
)
projects_of = st.tuples(
    *[
        st.builds(
            lambda quota, over, weight, name=name: ProjectState(name, quota * 500, over, weight),
            st.integers(0, 12),
            st.sampled_from([True, True, False]),
            st.sampled_from([None, 0, 1, 2, 3]),
        )
        for name in "abc"
    ]
)
rules_of = st.builds(SchedulerSettings, st.sampled_from([0, 0, 30]), st.sampled_from([0, 60, 1000]))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Clusters on which some run, some are terminating and some wait."""
    nodes: tuple[NodeSnapshot, ...] = draw(nodes_of)
    cluster = ClusterState([replace(each, open=True) for each in nodes])
    running: list[Running] = []
    queue: list[Workload] = []
    for at, row in enumerate(draw(st.lists(workloads_of, max_size=14))):
        workload = work(f"w{at:02}", row.pop("owner"), row.pop("gpus"), row.pop("at"), **row)
        places = cluster.find(workload) if draw(st.booleans()) else None
        if places:
            cluster.allocate(places, workload)
            terminating = draw(st.sampled_from([False, False, False, True]))
            running.append(Running(workload, places, workload.submitted_at, terminating))
        else:
            queue.append(workload)
    return Snapshot(NOW * SECOND, nodes, draw(projects_of), tuple(running), tuple(queue), draw(rules_of))


@given(snapshot=snapshots(), seed=st.integers(0, 9))
def test_what_holds_for_every_decision(snapshot: Snapshot, seed: int) -> None:
    decision = decide(snapshot)
    known = replace(
        snapshot,
        projects=(*snapshot.projects, ProjectState("d", 0, over_quota=False)),
    )
    check(known, decision)
    shuffled = [list(items) for items in (snapshot.nodes, snapshot.projects, snapshot.running, snapshot.queue)]
    for items in shuffled:
        random.Random(seed).shuffle(items)
    nodes, projects, running, queue = map(tuple, shuffled)
    assert decide(Snapshot(snapshot.now, nodes, projects, running, queue, snapshot.settings)) == decision, (  # type: ignore[arg-type]
        "the order of the rows does not matter"
    )


@given(snapshot=snapshots())
def test_reclaim_is_never_for_nothing(snapshot: Snapshot) -> None:
    decision = decide(snapshot)
    cluster = ClusterState(snapshot.nodes)
    taken = {reclaim.victim for reclaim in decision.reclaims}
    for each in snapshot.running:
        if not each.terminating and each.workload.id not in taken:
            cluster.allocate(each.placements, each.workload)
    queued = {workload.id: workload for workload in snapshot.queue}
    for id_, places in decision.placements.items():
        cluster.allocate(places, queued[id_])
    for beneficiary in {reclaim.beneficiary for reclaim in decision.reclaims}:
        assert decision.pending_reasons[beneficiary].cause is Cause.RECLAIMING
        assert cluster.find(queued[beneficiary]) is not None, "who is waited for fits once they are gone"


@given(snapshot=snapshots())
def test_a_planner_that_is_told_of_changes_decides_as_one_that_starts_anew(snapshot: Snapshot) -> None:
    planner = Planner.of(replace(snapshot, running=snapshot.running[::2], nodes=snapshot.nodes[:1]))
    planner.decide(snapshot.queue, snapshot.now, snapshot.settings)
    planner.sync(snapshot)
    first = planner.decide(snapshot.queue, snapshot.now, snapshot.settings)
    assert first == decide(snapshot)
    assert planner.decide(snapshot.queue, snapshot.now, snapshot.settings) == first, "a decision changes nothing"
    fewer = replace(snapshot, running=snapshot.running[1::2])
    planner.sync(fewer)
    assert planner.decide(fewer.queue, fewer.now, fewer.settings) == decide(fewer), "what has gone holds nothing back"


@given(snapshot=snapshots())
def test_a_cluster_settles_and_then_nobody_is_taken_back_any_more(snapshot: Snapshot) -> None:
    world = World(snapshot.nodes, (*snapshot.projects, ProjectState("d", 0, over_quota=False)), now=NOW)
    world.queue = {workload.id: workload for workload in snapshot.queue}
    world.running = {each.workload.id: each for each in snapshot.running}
    world.settle(limit=60)
    assert not world.step().reclaims
    assert not any(wait.cause is Cause.RECLAIMING for wait in world.decisions[-1].pending_reasons.values())


@given(
    sizes=st.lists(st.sampled_from([0.5, 1, 2, 3]), min_size=1, max_size=4),
    quotas=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    lives=st.integers(1, 6),
    large=st.sampled_from([(4.0, 1), (2.0, 2), (1.0, 6), (4.0, 2)]),
)
def test_a_large_one_runs_in_the_end_whatever_stream_of_small_ones_goes_by(
    sizes: list[float], quotas: tuple[int, int], lives: int, large: tuple[float, int]
) -> None:
    world = World(
        (node("m", 4), node("n", 4)),
        (project("large", 8 - sum(quotas)), project("b", quotas[0]), project("c", quotas[1])),
        SchedulerSettings(min_runtime_s=1_000_000, reserve_after_s=5),  # nobody is reclaimed: only a reservation helps
    )
    gpus, replicas = large
    if gpus * replicas * 1000 > world.projects[0].quota_milli:
        return
    ends: dict[str, int] = {}
    for at in range(200):
        for owner in "bc":
            size = sizes[at % len(sizes)]
            world.submit(*(work(f"{owner}{at}-{turn}", owner, size, at) for turn in range(4)))
        if at == 10:
            world.submit(work("the-large", "large", gpus, at, replicas=replicas))
        for id_ in world.step().placements:
            ends[id_] = at + lives + len(id_) % 3
        if "the-large" in world.running:
            return
        world.delete(*(id_ for id_ in list(world.running) if ends.get(id_, at) <= at and id_ not in world.terminating))
        for old in [
            id_ for id_ in world.queue if id_ != "the-large" and world.queue[id_].submitted_at < (at - 5) * SECOND
        ]:
            del world.queue[old]
    raise AssertionError(f"starved: {world.decisions[-1].pending_reasons['the-large']}")


@given(snapshot=snapshots())
def test_a_project_within_its_quota_keeps_all_it_has(snapshot: Snapshot) -> None:
    victims = {reclaim.victim: reclaim.beneficiary for reclaim in decide(snapshot).reclaims}
    owners = {workload.id: workload.project for workload in snapshot.queue}
    quotas = {item.name: item.quota_milli for item in snapshot.projects}
    had = held([each for each in snapshot.running if not each.terminating], snapshot.projects)
    for each in snapshot.running:
        name = each.workload.project
        if name in quotas and had[name] <= quotas[name] and each.workload.total_milli and each.workload.id in victims:
            assert owners[victims[each.workload.id]] == name, "only its own of a higher priority"
