"""Containers that belong together: NVLink islands, leaf switches, resource groups."""

from __future__ import annotations

from typing import Any

import pytest

from common.topology import TopologyLevel
from tests.unit.api.scheduler.lab import Used, cluster, node, where, work

TWO_ISLANDS = (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("used", "milli", "expected"),
    [
        pytest.param((0, 0, 0, 0), 2000, ["a-0 a-1"], id="two GPUs of one island (L17)"),
        pytest.param((1000, 0, 0, 0), 2000, ["a-2 a-3"], id="the island that has both"),
        pytest.param((1000, 0, 0, 1000), 2000, ["a-1 a-2"], id="two islands where none has both"),
        pytest.param((0, 0, 1000, 0), 1000, ["a-3"], id="one GPU leaves the other island whole"),
        pytest.param((0, 0, 600, 0), 1400, ["a-2:400 a-3"], id="the part beside the whole one"),
        pytest.param((0, 0, 0, 0), 3000, ["a-0 a-1 a-2"], id="more than an island has"),
    ],
)
def test_gpus_of_one_container_share_an_island(used: tuple[int, ...], milli: int, expected: list[str]) -> None:
    assert where(cluster(node("a", *used, islands=TWO_ISLANDS)).find(work(milli))) == expected


def test_a_node_with_a_whole_island_goes_before_a_tighter_one() -> None:
    whole = cluster(node("a", 0, 1000, 0, 1000, islands=TWO_ISLANDS), node("b", 0, 0, 0, 0, islands=TWO_ISLANDS))
    assert where(whole.find(work(2000))) == ["b-0 b-1"]


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        pytest.param([node("a", 0, 0, 0, 0, islands=TWO_ISLANDS)], {"replicas": 2}, ["a-0", "a-1"], id="an island"),
        pytest.param(
            [node("a", 0, 1000, 0, 1000, islands=TWO_ISLANDS), node("b", 0)],
            {"replicas": 2},
            ["a-0", "a-2"],
            id="a node",
        ),
        pytest.param(
            [node("a", 0, switch="s"), node("b", 0, switch="t"), node("c", 0, switch="t")],
            {"replicas": 2},
            ["b-0", "c-0"],
            id="a leaf switch",
        ),
        pytest.param(
            [node(name, 0, switch="t") for name in "abc"] + [node(name, 0, switch="u") for name in "de"],
            {"replicas": 2},
            ["d-0", "e-0"],
            id="the tightest leaf switch",
        ),
        pytest.param([node("a", 0, switch="s"), node("b", 0)], {"replicas": 2}, ["a-0", "b-0"], id="anywhere at last"),
        pytest.param(
            [node("a", 0), node("b", 0, 0, 0), node("c", 0, 0)],
            {"replicas": 5},
            ["b-0", "b-1", "b-2", "c-0", "c-1"],
            id="on as few nodes as can be",
        ),
        pytest.param([node("a", 0), node("b", 0)], {"replicas": 3}, None, id="all or nothing"),
        pytest.param(
            [node("a", 0, cpu_milli=2000), node("b", 0, 0, cpu_milli=1000)],
            {"replicas": 2, "cpu_milli": 1000},
            ["a-0", "b-0"],
            id="CPUs count for each",
        ),
        pytest.param(
            [node(str(number), 0) for number in range(20)],
            {"replicas": 20},
            [f"{n}-0" for n in sorted(map(str, range(20)))],
            id="twenty containers (L9)",
        ),
    ],
)
def test_a_gang_takes_the_smallest_domain(
    nodes: list[Used], wanted: dict[str, Any], expected: list[str] | None
) -> None:
    assert where(cluster(*nodes).find(work(1000, **wanted))) == expected


@pytest.mark.parametrize(
    ("within", "fits"),
    [
        (TopologyLevel.ISLAND, False),
        (TopologyLevel.NODE, False),
        (TopologyLevel.SWITCH, True),
        (TopologyLevel.ANYWHERE, True),
    ],
)
def test_a_required_domain_is_kept(within: TopologyLevel, fits: bool) -> None:
    nodes = [node("a", 0, switch="s"), node("b", 0, switch="s")]
    gang = work(1000, replicas=2, within=within, within_required=True)
    assert (cluster(*nodes).find(gang) is not None) == fits
    assert cluster(*nodes).find(work(1000, replicas=2, within=within)) is not None, "a wish alone gives way"


def test_one_container_may_require_its_island() -> None:
    whole = cluster(node("a", 0, 1000, 0, 1000, islands=TWO_ISLANDS))
    assert whole.find(work(2000, within=TopologyLevel.ISLAND, within_required=True)) is None
    assert where(whole.find(work(2000))) == ["a-0 a-2"]


def test_a_gang_that_requires_an_island_takes_one_that_has_room_for_all() -> None:
    whole = cluster(node("a", 0, 1000, 300, 0, islands=TWO_ISLANDS))
    gang = work(700, replicas=2, within=TopologyLevel.ISLAND, within_required=True)
    assert where(whole.find(gang)) == ["a-2:700", "a-3:700"]


def test_without_a_gpu_an_island_is_the_node() -> None:
    gang = work(0, replicas=2, within=TopologyLevel.ISLAND, within_required=True)
    assert where(cluster(node("a")).find(gang)) == ["a", "a"]


A, B, OPEN = node("a", 0, 0, groups=("red",)), node("b", 0, groups=("blue",)), node("open", 0, 0, 0)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({"groups": None}, ["b-0"], id="every group: the tightest node"),
        pytest.param({"groups": ("red",)}, ["a-0"], id="its own group first"),
        pytest.param({"groups": ("blue", "red")}, ["b-0"], id="by preference"),
        pytest.param(
            {"groups": ("blue", "red"), "gpu_milli": 2000}, ["a-0 a-1"], id="the next where the first is too small"
        ),
        pytest.param({"groups": ()}, ["open-0"], id="in no group only open nodes"),
        pytest.param({"groups": (), "grouped_only": True}, None, id="and not even those"),
        pytest.param(
            {"groups": ("red",), "gpu_milli": 3000}, ["open-0 open-1 open-2"], id="open nodes are always allowed"
        ),
        pytest.param({"groups": ("red",), "gpu_milli": 3000, "grouped_only": True}, None, id="unless only groups are"),
        pytest.param({"groups": ("green",), "grouped_only": True}, None, id="a group without nodes"),
        pytest.param({"groups": None, "replicas": 4}, None, id="a gang never lies in two groups"),
        pytest.param({"groups": None, "replicas": 3}, ["open-0", "open-1", "open-2"], id="but in one"),
    ],
)
def test_resource_groups(wanted: dict[str, Any], expected: list[str] | None) -> None:
    """Rows P1 to P3, C10."""
    assert where(cluster(A, B, OPEN).find(work(wanted.pop("gpu_milli", 1000), **wanted))) == expected


def test_a_gang_over_several_nodes_stays_in_one_group() -> None:
    """Row P3."""
    nodes = [node("a", 0, groups=("red",)), node("b", 0, groups=("blue",)), node("c", 0, groups=("red", "blue"))]
    gang = work(1000, replicas=2, groups=("blue", "red"))
    assert where(cluster(*nodes).find(gang)) == ["b-0", "c-0"]
    assert cluster(*nodes[:2]).find(gang) is None
