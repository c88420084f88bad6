"""Where work goes: tables of nodes and work in, places out."""

from __future__ import annotations

from typing import Any

import pytest

from api.scheduler.snapshot import Placement
from common.gpu.share import GpuShare
from tests.unit.api.scheduler.lab import Used, cluster, fill, node, where, work

FGPU = 500
"""Milli-GPU of one fGPU where two make a GPU."""


@pytest.mark.parametrize(
    ("nodes", "milli", "expected"),
    [
        pytest.param([node("a", 0, 0)], 500, ["a-0:500"], id="a fraction takes the first GPU"),
        pytest.param([node("a", 0, 500)], 500, ["a-1:500"], id="a fraction fills a shared GPU"),
        pytest.param([node("a", 300, 600)], 400, ["a-1:400"], id="a fraction takes the fullest that fits"),
        pytest.param([node("a", 300, 700)], 400, ["a-0:400"], id="the fullest is too full"),
        pytest.param([node("a", 0), node("b", 500)], 500, ["b-0:500"], id="a shared GPU of another node"),
        pytest.param(
            [node("a", 0, 0, 0), node("b", 0, 700)], 300, ["b-1:300"], id="no new GPU while a shared one fits"
        ),
        pytest.param([node("a", 0, 0), node("b", 0)], 500, ["b-0:500"], id="a new GPU where fewer are free"),
        pytest.param([node("a", 0, 0, 0), node("b", 0, 0)], 2000, ["b-0 b-1"], id="tightest node"),
        pytest.param([node("a", 0, 0), node("b", 0, 1000)], 1000, ["b-0"], id="one GPU takes the node with one"),
        pytest.param([node("a", 500, 0)], 1000, ["a-1"], id="a whole GPU is never a shared one"),
        pytest.param([node("a", 500, 500)], 1000, None, id="two halves are no whole"),
        pytest.param([node("a", 0, 0, 0)], 2500, ["a-0:500 a-1 a-2"], id="two and a half, three GPUs"),
        pytest.param([node("a", 0, 500, 0)], 2500, ["a-0 a-1:500 a-2"], id="the half fills a shared one"),
        pytest.param([node("a", 0, 700, 0)], 2500, None, id="the shared one is too full for the half"),
        pytest.param([node("a", 0, 0), node("b", 0)], 2500, None, id="not across nodes"),
        pytest.param([node("a", 0), node("b", 0)], 2000, None, id="whole GPUs of one node only"),
        pytest.param([node("a", *[0] * 16)], 16000, [" ".join(f"a-{i}" for i in range(16))], id="sixteen (C9)"),
        pytest.param([node("a", 1200)], 100, None, id="records beyond a GPU leave nothing"),
        pytest.param(
            [node("a", 0, fractions=False), node("b", 0, 0)], 500, ["b-0:500"], id="GPUs that cannot be shared"
        ),
        pytest.param([node("a", 0, 0, fractions=False), node("b", 0)], 2500, None, id="nor for the half of 2.5"),
        pytest.param([node("a", 0, fractions=False)], 1000, ["a-0"], id="but whole they can be had"),
        pytest.param([node("a", 0, open=False), node("b", 0, 0)], 1000, ["b-0"], id="a closed node takes nothing new"),
        pytest.param([], 100, None, id="no nodes"),
    ],
)
def test_shares(nodes: list[Used], milli: int, expected: list[str] | None) -> None:
    assert where(cluster(*nodes).find(work(milli))) == expected


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        pytest.param([node("a", 0, cpu_milli=4000)], {"cpu_milli": 4001}, None, id="too few CPUs"),
        pytest.param([node("a", 0, cpu_milli=4000)], {"cpu_milli": 4000}, ["a-0"], id="just enough"),
        pytest.param(
            [node("a", 0)], {"cpu_milli": 10**6, "memory_mib": 10**9}, ["a-0"], id="what is not known, limits not"
        ),
        pytest.param([node("a", 0, memory_mib=99)], {"memory_mib": 100}, None, id="too little memory"),
        pytest.param(
            [node("a", 0, cpu_milli=8000), node("b", 0, cpu_milli=64000)], {"cpu_milli": 6000}, ["a-0"], id="few CPUs"
        ),
        pytest.param(
            [node("a", 0, models=["V100"]), node("b", 0, 0, models=["P100"] * 2)],
            {"gpu_models": ("P100",)},
            ["b-0"],
            id="the model asked for",
        ),
        pytest.param(
            [node("a", 0, 0, models=["V100", "P100"])],
            {"gpu_models": ("P100", "A10")},
            ["a-1"],
            id="models mixed on a node",
        ),
        pytest.param([node("a", 0, models=["V100"])], {"gpu_models": ("P100",)}, None, id="no such model"),
    ],
)
def test_cpu_memory_and_models(nodes: list[Used], wanted: dict[str, Any], expected: list[str] | None) -> None:
    assert where(cluster(*nodes).find(work(1000, **wanted))) == expected


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        pytest.param([node("gpu", 0), node("cpu")], {}, ["cpu"], id="to the CPU node (C7)"),
        pytest.param(
            [node("cpu", cpu_milli=999), node("gpu", 0)], {}, ["gpu"], id="to a GPU node where none other fits"
        ),
        pytest.param(
            [node("cpu", open=False), node("gpu", 0)], {}, ["gpu"], id="to a GPU node where none other is open"
        ),
        pytest.param(
            [node("gpu", 0, groups=("g",)), node("cpu")], {"groups": ("g",)}, ["cpu"], id="before the order of groups"
        ),
        pytest.param(
            [node("cpu", cpu_milli=2000), node("gpu", 0)], {"replicas": 3}, ["gpu"] * 3, id="a gang stays together"
        ),
        pytest.param(
            [node("cpu1", cpu_milli=2000), node("cpu2", cpu_milli=2000), node("gpu", 0)],
            {"replicas": 3},
            ["cpu1", "cpu1", "cpu2"],
            id="on several CPU nodes rather than one GPU node",
        ),
    ],
)
def test_work_without_a_gpu(nodes: list[Used], wanted: dict[str, Any], expected: list[str]) -> None:
    assert where(cluster(*nodes).find(work(0, cpu_milli=1000, **wanted))) == expected


def test_a_cluster_without_a_gpu_takes_work_without_one() -> None:
    whole = cluster(node("a", cpu_milli=4000), node("b", cpu_milli=2000))
    assert where(whole.find(work(0, cpu_milli=1000))) == ["b"]
    assert fill(whole, work(0, cpu_milli=1000)) == 6


def test_gpu_work_goes_to_gpu_nodes() -> None:
    assert where(cluster(node("cpu"), node("gpu", 0)).find(work(500))) == ["gpu-0:500"]


def test_a_node_holds_100_containers() -> None:
    """Row C9."""
    whole = cluster(node("a", 0, 0), node("cpu"))
    assert fill(whole, work(0)) == 200
    assert whole.find(work(100)) is None, "the 101st is refused though the GPUs are free"


def test_eight_eighths_fit_on_a_gpu_and_the_ninth_waits() -> None:
    """Row L3."""
    assert fill(cluster(node("a", 0)), work(125)) == 8


@pytest.mark.parametrize(
    ("milli", "all_"),
    [pytest.param(300, 72, id="0.3 GPU: three a GPU"), pytest.param(300 * FGPU // 1000, 144, id="0.3 fGPU: six a GPU")],
)
def test_a_university_class_of_80_on_24_gpus(milli: int, all_: int) -> None:
    """Row L15: on three servers of eight GPUs, 80 students with 0.3 fGPU each; 0.3 GPU does for 72 of them."""
    whole = cluster(*(node(f"server{number}", *[0] * 8) for number in range(3)))
    assert fill(whole, work(milli)) == all_
    assert (all_ >= 80) == (milli == 150)


@pytest.mark.parametrize("shares", [(600, 400), (500, 300, 200), (400, 600), (200, 300, 500)])
def test_fractions_share_one_gpu(shares: tuple[int, ...]) -> None:
    """Row M6."""
    whole = cluster(node("a", *[0] * 8))
    used = set()
    for milli in shares:
        places = whole.find(work(milli))
        assert places
        whole.allocate(places, work(milli))
        used |= {share.uuid for share in places[0].shares}
    assert len(used) == 1


def test_places_are_the_same_whatever_the_order_of_the_nodes() -> None:
    nodes = [node(f"n{number}", 0, 0, 500) for number in range(6)]
    kinds = [work(500), work(1000), work(2500), work(1000, replicas=4)]

    def places(order: list[Used]) -> list[list[str] | None]:
        whole = cluster(*order)
        found = []
        for kind in kinds:
            chosen = whole.find(kind)
            found.append(where(chosen))
            whole.allocate(chosen or (), kind)
        return found

    assert places(nodes) == places(nodes[::-1])


def test_looking_changes_nothing() -> None:
    whole = cluster(node("a", 0, 0), node("b", 0, 500))
    gang = work(1000, replicas=2)
    assert whole.find(gang) == whole.find(gang)
    assert fill(whole, gang) == 1


def test_a_trial_asks_what_would_be_if_others_left() -> None:
    whole = cluster(node("a", 0), node("b", 1000))
    on_a, on_b = (Placement(name, (GpuShare(f"{name}-0", 0, 1000),)) for name in "ab")
    with whole.trial():
        whole.allocate([on_a], work())
        assert whole.find(work()) is None
        whole.release([on_b], work())
        assert where(whole.find(work())) == ["b-0"]
    assert where(whole.find(work())) == ["a-0"], "it was a question only"
