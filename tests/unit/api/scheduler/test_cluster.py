"""What is held and given back, and what people are told of work that has no place."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import Placement
from common.gpu.share import GpuShare
from common.topology import TopologyLevel
from tests.unit.api.scheduler.lab import Used, cluster, fill, node, where, work


def state(whole: ClusterState) -> tuple[Any, ...]:
    free = whole.state
    return free.milli.tolist(), free.cpu.tolist(), free.memory.tolist(), free.containers.tolist()


def test_what_is_given_back_is_free_again() -> None:
    whole = cluster(node("a", 0, 500, cpu_milli=8000, memory_mib=100))
    before = state(whole)
    item = work(1500, cpu_milli=8000, memory_mib=100)
    places = whole.find(item)
    assert places
    whole.allocate(places, item)
    assert whole.find(work(100)) is None
    assert whole.find(work(100, cpu_milli=1)) is None
    whole.release(places, item)
    assert state(whole) == before


def test_trials_are_undone_one_in_another_and_by_errors() -> None:
    whole = cluster(node("a", 0, 0))
    before = state(whole)
    with whole.trial():
        assert fill(whole, work(1000)) == 2
        inside = state(whole)
        with suppress(RuntimeError), whole.trial():
            whole.release((Placement("a", (GpuShare("a-0", 0, 1000),)),), work())
            raise RuntimeError
        assert state(whole) == inside
    assert state(whole) == before


def test_places_held_ahead_of_those_who_leave() -> None:
    """A reservation: what is held twice is free only when both have given it back."""
    whole = cluster(node("a", 0))
    places = (Placement("a", (GpuShare("a-0", 0, 1000),)),)
    whole.allocate(places, work())
    whole.allocate(places, work())
    whole.release(places, work())
    assert whole.find(work(100)) is None
    whole.release(places, work())
    assert where(whole.find(work())) == ["a-0"]


def test_places_that_are_no_more_are_passed_over() -> None:
    whole = cluster(node("a", 0))
    gone = (Placement("away", (GpuShare("x", 0, 1000),)), Placement("a", (GpuShare("removed", 0, 1000),)))
    whole.allocate(gone, work())
    assert where(whole.find(work())) == ["a-0"]
    whole.release(gone, work())
    assert state(whole) == state(cluster(node("a", 0)))


def test_a_gpu_is_known_by_its_identifier_not_by_its_number() -> None:
    whole = cluster(node("a", 0, 0))
    whole.allocate((Placement("a", (GpuShare("a-1", 0, 1000),)),), work())
    assert where(whole.find(work())) == ["a-0"]


def test_room_counts_containers_by_node() -> None:
    whole = cluster(node("a", 0, 500, 0), node("b", 0, open=False), node("c", 900))
    assert whole.names == ("a", "b", "c")
    assert whole.fitting(work(500, replicas=9)).tolist() == [5, 0, 0]
    assert whole.fitting(work(1500, replicas=9)).tolist() == [1, 0, 0], "the second would need a half of the third"


BIG = node("big", 0, 0, 0, 0, cpu_milli=32000, memory_mib=1000, islands=(0, 0, 1, 1), switch="s", models=["V100"] * 4)
SMALL = node("small", 0, cpu_milli=64000, memory_mib=9000, switch="t", groups=("red",), models=["P100"])


@pytest.mark.parametrize(
    ("nodes", "milli", "wanted", "told"),
    [
        pytest.param([BIG, SMALL], 17000, {}, "a container holds at most 16 GPUs, not 17; ask for fewer", id="C9"),
        pytest.param(
            [BIG, SMALL],
            5000,
            {},
            "one container asks for 5 GPUs and the largest node that it may use has 4 GPUs; "
            "ask for at most that in a container",
            id="more GPUs than a node has",
        ),
        pytest.param(
            [BIG],
            3000,
            {"within": TopologyLevel.ISLAND, "within_required": True},
            "one container asks for 3 GPUs and the largest island that it may use has 2 GPUs; "
            "ask for at most that in a container",
            id="more than an island has",
        ),
        pytest.param(
            [BIG, SMALL],
            1000,
            {"gpu_models": ("A10",)},
            "no node that it may use has a GPU of A10, they have P100 and V100; choose another model or resource group",
            id="no such model",
        ),
        pytest.param(
            [node("cpu")],
            500,
            {},
            "no node that it may use has a GPU, they have none at all; choose another model or resource group",
            id="no GPUs",
        ),
        pytest.param(
            [node("whole", 0, fractions=False)],
            500,
            {},
            "no GPU that it may use can be shared; ask for whole GPUs",
            id="no sharing",
        ),
        pytest.param(
            [BIG, SMALL],
            4000,
            {"cpu_milli": 40000},
            "one container asks for 40 CPUs and the largest has 32 CPUs of the nodes that have its GPUs; ask for less",
            id="CPUs",
        ),
        pytest.param(
            [BIG, SMALL],
            1000,
            {"cpu_milli": 65000, "memory_mib": 9001},
            "one container asks for 65 CPUs and the largest has 64 CPUs, and for 9001 MiB of memory and the largest "
            "has 9000 MiB of the nodes that have its GPUs; ask for less",
            id="CPUs and memory",
        ),
        pytest.param(
            [BIG, SMALL],
            0,
            {"cpu_milli": 65000},
            "one container asks for 65 CPUs and the largest has 64 CPUs; ask for less",
            id="CPUs without a GPU",
        ),
        pytest.param(
            [BIG, SMALL],
            2000,
            {"memory_mib": 2000},
            "one container asks for 2000 MiB of memory and the largest has 1000 MiB of the nodes that have its GPUs; "
            "ask for less",
            id="memory",
        ),
        pytest.param(
            [BIG, SMALL],
            1000,
            {"cpu_milli": 40000, "gpu_models": ("V100", "P100"), "memory_mib": 9001},
            "one container asks for 9001 MiB of memory and the largest has 9000 MiB of the nodes that have its GPUs; "
            "ask for less",
            id="memory alone",
        ),
        pytest.param(
            [node("a", 0, cpu_milli=1000), node("b", 0, cpu_milli=9000, memory_mib=10)],
            1000,
            {"cpu_milli": 2000, "memory_mib": 20},
            "no node has all that one container asks for at once (GPUs, CPU, memory); ask for less of one of them",
            id="not at once",
        ),
        pytest.param(
            [BIG, SMALL],
            1000,
            {"groups": ("green",), "grouped_only": True},
            "no node lies in green; ask the administrator to add one, or choose another resource group",
            id="an empty group",
        ),
        pytest.param(
            [BIG, SMALL],
            1000,
            {"groups": (), "grouped_only": True},
            "no resource group is open to it; ask the administrator for one",
            id="no group at all",
        ),
        pytest.param(
            [BIG, SMALL],
            1000,
            {"replicas": 5},
            "5 containers are asked for and the nodes that it may use together have room for 4; ask for at most 4",
            id="too many containers",
        ),
        pytest.param(
            [BIG, SMALL],
            1000,
            {"replicas": 3, "within": TopologyLevel.ISLAND, "within_required": True},
            "3 containers are asked for and one NVLink island has room for 2; ask for at most 2, "
            "or allow a larger topology domain",
            id="too many for an island",
        ),
        pytest.param([], 1000, {}, "", id="no node is known yet"),
        pytest.param([node("a", 1000)], 1000, {}, "", id="what is in use now may become free"),
        pytest.param([node("a", 0, open=False)], 1000, {}, "", id="a closed node may open"),
        pytest.param([BIG, SMALL], 4000, {"cpu_milli": 32000}, "", id="all of a node"),
        pytest.param([BIG, SMALL], 0, {"cpu_milli": 64000}, "", id="CPUs of a GPU node"),
    ],
)
def test_what_can_never_run_says_what_is_missing(
    nodes: list[Used], milli: int, wanted: dict[str, Any], told: str
) -> None:
    assert cluster(*nodes).never_fits(work(milli, **wanted)) == told


def test_never_fits_agrees_with_an_empty_cluster() -> None:
    nodes = [replace(state, open=True) for state, _ in (BIG, SMALL, node("c", 0, 0, switch="s"))]
    for milli in (0, 300, 700, 1000, 1500, 2000, 2500, 4000, 5000):
        for replicas in (1, 2, 3, 7, 20):
            for within in TopologyLevel:
                item = work(milli, replicas=replicas, within=within, within_required=True, cpu_milli=5000)
                empty = ClusterState(nodes)
                assert (empty.find(item) is None) == bool(empty.never_fits(item)), item


@pytest.mark.parametrize(
    ("nodes", "milli", "wanted", "told"),
    [
        pytest.param(
            [node("worker1", 500, 1000), node("worker2", 900)],
            600,
            {},
            "largest free piece is 0.5 GPU on worker1",
            id="a part",
        ),
        pytest.param([node("a", 0, 800, 0)], 3000, {}, "largest free piece is 2.2 GPUs on a", id="several GPUs"),
        pytest.param([node("a", 0, 800, fractions=False)], 3000, {}, "largest free piece is 1 GPU on a", id="no parts"),
        pytest.param(
            [node("a", 0, 0, fractions=False), node("b", 600)],
            500,
            {},
            "largest free piece is 0.4 GPU on b",
            id="a part where GPUs are shared",
        ),
        pytest.param(
            [node("a", 0, 0, fractions=False), node("b", 600, 600)],
            1500,
            {},
            "largest free piece is 0.4 GPU on b",
            id="a part beside whole ones where GPUs are shared",
        ),
        pytest.param(
            [node("a", 0, fractions=False), node("b", 1000)],
            500,
            {},
            "every GPU in service that it may use in part is in use",
            id="whole GPUs alone",
        ),
        pytest.param(
            [*(node(name, 0, fractions=False) for name in "abcd"), node("e", 0, open=False)],
            500,
            {},
            "GPUs of a, b, c and 1 more are not shared",
            id="no node that shares is open",
        ),
        pytest.param([node("a", 1000)], 500, {}, "every GPU in service that it may use is in use", id="nothing"),
        pytest.param([node("a", 0, open=False)], 500, {}, "no node is ready", id="closed"),
        pytest.param([], 500, {}, "no node is ready", id="no nodes"),
        pytest.param(
            [node("a", 0, groups=("red",))], 500, {"groups": ()}, "no node that it may use is ready", id="of others"
        ),
        pytest.param([node("a", 0)], 500, {"gpu_models": ("A10",)}, "no node with a GPU of A10 is ready", id="model"),
        pytest.param(
            [node("a", 0, 0, cpu_milli=2000)],
            1000,
            {"cpu_milli": 4000},
            "largest free piece is 2 GPUs on a, which has 2 CPUs of 4 CPUs free",
            id="too few CPUs beside it",
        ),
        pytest.param(
            [node("a", 0, memory_mib=50)],
            1000,
            {"memory_mib": 60},
            "largest free piece is 1 GPU on a, which has 50 of 60 MiB of memory free",
            id="too little memory beside it",
        ),
        pytest.param(
            [node("a", cpu_milli=2000, memory_mib=50), node("b", cpu_milli=1000)],
            0,
            {"cpu_milli": 3000},
            "largest free piece is 2 CPUs with 50 MiB of memory on a",
            id="without a GPU",
        ),
    ],
)
def test_the_largest_piece_for_those_who_wait(nodes: list[Used], milli: int, wanted: dict[str, Any], told: str) -> None:
    assert cluster(*nodes).largest_piece(work(milli, **wanted)) == told


def test_nodes_full_of_containers_have_no_piece() -> None:
    whole = cluster(node("a", 0), node("cpu"))
    fill(whole, work(0))
    assert whole.largest_piece(work(0)) == "every node holds 100 containers"
    assert whole.largest_piece(work(500)) == "every GPU in service that it may use is in use"
