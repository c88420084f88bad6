"""What holds of places whatever the nodes and the work are."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import MAX_CONTAINERS_PER_NODE, GpuState, NodeSnapshot, Placement, Workload
from common.gpu.share import MILLI
from common.topology import TopologyLevel

MODELS = ("V100", "P100")
GROUPS = ("red", "blue")
GROUP_SETS = st.sampled_from([(), ("red",), ("blue",), GROUPS])


@st.composite
def nodes_of(draw: st.DrawFn) -> tuple[NodeSnapshot, ...]:
    return tuple(
        NodeSnapshot(
            f"n{number}",
            tuple(
                GpuState(index, f"n{number}-{index}", draw(st.sampled_from(MODELS)), index // 2)
                for index in range(draw(st.integers(0, 4)))
            ),
            cpu_milli=draw(st.sampled_from([0, 4000, 16000])),
            memory_mib=draw(st.sampled_from([0, 1000])),
            groups=draw(GROUP_SETS),
            switch=draw(st.sampled_from(["", "s", "t"])),
            open=draw(st.sampled_from([True, True, True, False])),
            fractions=draw(st.sampled_from([True, True, False])),
        )
        for number in range(draw(st.integers(0, 4)))
    )


WORK = st.builds(
    Workload,
    id=st.just("w"),
    project=st.just("p"),
    submitted_at=st.just(0),
    replicas=st.sampled_from([1, 1, 1, 2, 3, 5]),
    gpu_milli=st.sampled_from([0, 100, 250, 300, 500, 700, 1000, 1000, 1300, 2000, 2500, 4000]),
    cpu_milli=st.sampled_from([0, 1000, 3000]),
    memory_mib=st.sampled_from([0, 100, 400]),
    groups=st.sampled_from([None, None, (), ("red",), ("blue", "red")]),
    grouped_only=st.booleans(),
    gpu_models=st.sampled_from([(), (), ("V100",), MODELS]),
    within=st.sampled_from(list(TopologyLevel)),
    within_required=st.booleans(),
)
ACTIONS = st.lists(st.tuples(WORK, st.booleans()), max_size=25)

Held = list[tuple[tuple[Placement, ...], Workload]]


def play(nodes: tuple[NodeSnapshot, ...], actions: list[tuple[Workload, bool]]) -> tuple[ClusterState, Held]:
    """Place each workload where it fits; after some, give the oldest back."""
    cluster = ClusterState(nodes)
    held: Held = []
    for item, leave in actions:
        places = cluster.find(item)
        if places is not None:
            cluster.allocate(places, item)
            held.append((places, item))
        if leave and held:
            cluster.release(*held.pop(0))
    return cluster, held


def free(cluster: ClusterState) -> tuple[Any, ...]:
    state = cluster.state
    return state.milli.tolist(), state.cpu.tolist(), state.memory.tolist(), state.containers.tolist()


@given(nodes=nodes_of(), actions=ACTIONS)
def test_nobody_gets_more_than_there_is_or_other_than_was_asked(
    nodes: tuple[NodeSnapshot, ...], actions: list[tuple[Workload, bool]]
) -> None:
    _, held = play(nodes, actions)
    by_name = {node.name: node for node in nodes}
    parts: dict[str, list[int]] = defaultdict(list)
    cpu: dict[str, int] = defaultdict(int)
    memory: dict[str, int] = defaultdict(int)
    containers: dict[str, int] = defaultdict(int)
    for places, item in held:
        assert len(places) == item.replicas, "all or nothing"
        for place in places:
            node = by_name[place.node]
            gpus = {gpu.uuid: gpu for gpu in node.gpus}
            milli = [share.milli for share in place.shares]
            assert node.open
            assert sum(milli) == item.gpu_milli
            assert sum(1 for part in milli if part < MILLI) == (1 if item.gpu_milli % MILLI else 0)
            assert len({share.uuid for share in place.shares}) == len(place.shares)
            assert all(gpus[share.uuid].index == share.index for share in place.shares)
            assert all(not item.gpu_models or gpus[share.uuid].model in item.gpu_models for share in place.shares)
            assert node.fractions or all(part == MILLI for part in milli)
            assert not item.grouped_only or node.groups
            assert item.groups is None or not node.groups or set(node.groups) & set(item.groups)
            for share in place.shares:
                parts[share.uuid].append(share.milli)
            cpu[node.name] += item.cpu_milli
            memory[node.name] += item.memory_mib
            containers[node.name] += 1
        used = {place.node for place in places}
        grouped = [set(by_name[name].groups) for name in used]
        assert len(used) == 1 or not any(grouped) or set.intersection(*grouped), "one group"
        if item.within_required and item.within in (TopologyLevel.NODE, TopologyLevel.ISLAND):
            assert len(used) == 1
        if item.within_required and item.within is TopologyLevel.SWITCH and len(used) > 1:
            assert len({by_name[name].switch for name in used} | {""}) == 2
        if item.within_required and item.within is TopologyLevel.ISLAND:
            islands = {share.index // 2 for place in places for share in place.shares}
            assert len(islands) <= 1
    assert all(sum(each) <= MILLI for each in parts.values()), "whole and shared at once is more than one GPU"
    assert all(not node.cpu_milli or cpu[node.name] <= node.cpu_milli for node in nodes)
    assert all(not node.memory_mib or memory[node.name] <= node.memory_mib for node in nodes)
    assert all(count <= MAX_CONTAINERS_PER_NODE for count in containers.values())


@given(nodes=nodes_of(), actions=ACTIONS)
def test_giving_all_back_leaves_what_was_there(
    nodes: tuple[NodeSnapshot, ...], actions: list[tuple[Workload, bool]]
) -> None:
    before = free(ClusterState(nodes))
    cluster, held = play(nodes, actions)
    for places, item in held:
        cluster.release(places, item)
    assert free(cluster) == before
    assert cluster.demand.typical.weight.tolist() == ClusterState(nodes).demand.typical.weight.tolist()


@given(nodes=nodes_of(), actions=ACTIONS)
def test_the_same_work_gets_the_same_places(
    nodes: tuple[NodeSnapshot, ...], actions: list[tuple[Workload, bool]]
) -> None:
    assert play(nodes, actions)[1] == play(nodes[::-1], actions)[1]


@given(nodes=nodes_of(), actions=ACTIONS, item=WORK)
def test_a_trial_leaves_no_trace(
    nodes: tuple[NodeSnapshot, ...], actions: list[tuple[Workload, bool]], item: Workload
) -> None:
    cluster, held = play(nodes, actions)
    before = free(cluster)
    found = cluster.find(item)
    with cluster.trial():
        for places, other in held:
            cluster.release(places, other)
        if found:
            cluster.allocate(found, item)
        cluster.observe(item)
    assert free(cluster) == before
    assert cluster.find(item) == found


@given(nodes=nodes_of(), actions=ACTIONS, item=WORK)
def test_one_container_waits_only_where_no_node_has_room(
    nodes: tuple[NodeSnapshot, ...], actions: list[tuple[Workload, bool]], item: Workload
) -> None:
    cluster, _ = play(nodes, actions)
    alone = replace(item, replicas=1, within_required=False)
    assert (cluster.find(alone) is not None) == bool(cluster.fitting(alone).any())


@given(nodes=nodes_of(), item=WORK)
def test_never_fits_is_what_an_empty_open_cluster_cannot_place(nodes: tuple[NodeSnapshot, ...], item: Workload) -> None:
    open_ = [replace(node, open=True) for node in nodes]
    told = ClusterState(nodes).never_fits(item)
    assert bool(told) == bool(nodes and ClusterState(open_).find(item) is None)


@given(nodes=nodes_of(), actions=ACTIONS, item=WORK)
def test_the_room_of_a_node_is_what_can_be_placed_on_it(
    nodes: tuple[NodeSnapshot, ...], actions: list[tuple[Workload, bool]], item: Workload
) -> None:
    """Placing one after the other on one node never strands what the count said."""
    cluster, _ = play(nodes, actions)
    many = replace(item, replicas=5, within_required=False, groups=None, grouped_only=False)
    for row, node in enumerate(cluster.layout.nodes):
        alone = replace(many, replicas=min(5, max(1, int(cluster.fitting(many)[row]))))
        if cluster.fitting(alone)[row] >= alone.replicas:
            only = ClusterState([node])
            only.state = cluster.state.rows(np.array([row]))
            only.state.milli = only.state.milli[:, : len(node.gpus)]
            assert only.find(alone) is not None
