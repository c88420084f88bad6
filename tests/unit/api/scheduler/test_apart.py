"""A node that stands for a cluster: its islands are machines, and no container has GPUs of two of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.cluster import ClusterState
from api.scheduler.decide import decide
from api.scheduler.snapshot import Cause, Decision, NodeSnapshot, Running, Snapshot, Workload
from tests.unit.api.scheduler.world import node, on, project, runs, work


def decision(nodes: tuple[NodeSnapshot, ...], *queue: Workload, running: tuple[Running, ...] = ()) -> Decision:
    return decide(Snapshot(1000, nodes, (project("a", 16), project("b", 16)), running, queue))


CLUSTER = node("k8s", 4, island=2, apart=True, fractions=False)
"""Two machines with two GPUs each."""


def test_a_container_gets_the_gpus_of_one_machine() -> None:
    there = (runs(work("first", "a"), on("k8s", 1)),)
    found = decision((CLUSTER,), work("pair", "a", 2), running=there)
    assert found.placements["pair"] == (on("k8s", 0, 0, 1, 1),)


def test_one_for_which_each_machine_has_too_little_waits() -> None:
    """On a node of one machine it would run: two GPUs are free."""
    there = (runs(work("first", "a"), on("k8s", 1)), runs(work("second", "a"), on("k8s", 0, 0, 1)))
    found = decision((CLUSTER,), work("pair", "a", 2), running=there)
    assert found.pending_reasons["pair"].cause is Cause.NO_ROOM
    assert found.pending_reasons["pair"].reason == "no node has 2 GPUs free; largest free piece is 1 GPU on k8s"
    whole = decision((replace(CLUSTER, apart=False),), work("pair", "a", 2), running=there)
    assert "pair" in whole.placements


def test_one_that_no_machine_could_hold_never_fits_and_says_so() -> None:
    found = decision((CLUSTER,), work("large", "a", 3))
    assert found.pending_reasons["large"].cause is Cause.NEVER_FITS
    assert "one container asks for 3 GPUs and the largest machine that it may use has 2 GPUs" in (
        found.pending_reasons["large"].reason
    )


def test_other_nodes_keep_their_room() -> None:
    found = decision((CLUSTER, node("worker", 4, island=2)), work("large", "a", 3))
    assert found.placements["large"] == (on("worker", 1, 1, 1),)


def test_containers_of_one_session_lie_where_they_can_meet() -> None:
    gang = work("gang", "a", 1, replicas=2)
    worker = node("worker", 2)
    assert decision((CLUSTER, worker), gang).placements["gang"] == (on("worker", 1), on("worker", 0, 1))
    wait = decision((CLUSTER,), gang).pending_reasons["gang"]
    assert (wait.cause, "cannot meet on the nodes that it may use" in wait.reason) == (Cause.NEVER_FITS, True)


def test_nobody_is_taken_back_for_containers_that_could_not_meet() -> None:
    there = tuple(runs(work(f"a{at}", "a", at=at), on("k8s", *[0] * at, 1)) for at in range(4))
    taken = (runs(work("busy", "b", 2, preemptible=False), on("worker", 1, 1)),)
    quotas = (project("a", 2), project("b", 4))
    nodes = (CLUSTER, node("worker", 2))
    found = decide(Snapshot(1000, nodes, quotas, there + taken, (work("gang", "b", 1, replicas=2),)))
    assert found.reclaims == ()


def test_what_is_taken_back_is_on_one_machine() -> None:
    """`b` is owed two GPUs together: the two sessions that began last are on two machines, and would not help."""
    there = tuple(runs(work(f"a{at}", "a", at=at), on("k8s", *[0] * place, 1)) for at, place in enumerate((0, 2, 1, 3)))
    quotas = (project("a", 2), project("b", 2))
    found = decide(Snapshot(1000, (CLUSTER,), quotas, there, (work("pair", "b", 2),)))
    assert {reclaim.victim for reclaim in found.reclaims} in ({"a0", "a2"}, {"a1", "a3"})


@given(
    held=st.lists(st.booleans(), min_size=6, max_size=6),
    asked=st.integers(1, 4),
)
def test_it_is_placed_exactly_where_the_machines_have_room(held: list[bool], asked: int) -> None:
    machines = node("k8s", 6, island=3, apart=True, fractions=False)
    cluster = ClusterState((machines,))
    for at, taken in enumerate(held):
        if taken:
            cluster.allocate((on("k8s", *[0] * at, 1),), work(f"held{at}", "a"))
    places = cluster.find(work("new", "a", asked))
    assert (places is not None) == any(held[at : at + 3].count(False) >= asked for at in (0, 3))
    for place in places or ():
        assert len({share.index // 3 for share in place.shares}) == 1


@pytest.mark.parametrize("apart", [False, True])
def test_work_without_gpus_goes_anywhere(*, apart: bool) -> None:
    found = decision((replace(CLUSTER, apart=apart, cpu_milli=4000),), work("cpu", "a", 0, cpu_milli=4000))
    assert found.placements["cpu"] == (on("k8s"),)
