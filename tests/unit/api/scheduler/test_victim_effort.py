"""What a search for victims costs where hundreds of the project's own sessions would have to go."""

from __future__ import annotations

from typing import Any

import pytest

from api.scheduler.cluster import ClusterState
from api.scheduler.region import Region
from api.scheduler.residents import Residents
from api.scheduler.snapshot import Running
from api.scheduler.victim_search import LARGE, LOOKS, cheapest
from api.scheduler.victims import VictimPool
from tests.unit.api.scheduler.world import node, on, runs, work

NODES, GPUS = 48, 8
OWN = NODES * (GPUS - 1)
"""One GPU of each node is another project's."""


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many candidates there were at each look at a few nodes."""
    counted: list[int] = []
    of = Region.of

    def counting(*args: Any) -> Region:
        region = of(*args)
        counted.append(region.candidates)
        return region

    monkeypatch.setattr(Region, "of", counting)
    return counted


def search(due: int) -> tuple[tuple[Running, ...] | None, int]:
    """Look for who has to go for two GPUs of `a`, which owes so many milli-GPU; returns the steps as well."""
    nodes = [node(f"n{at:02}", GPUS) for at in range(NODES)]
    cluster, residents, steps = ClusterState(nodes), Residents(), list[int]()
    for each in nodes:
        there = [runs(work(f"{each.name}-{at}", "a" if at else "b"), on(each.name, *[0] * at, 1)) for at in range(GPUS)]
        for running in there:
            cluster.allocate(running.placements, running.workload)
            residents.add(running)
    pool = VictimPool({"b": NODES * 1000}, last_may_pass=True, own="a", below=60, due=due, now=10**9)
    return cheapest(cluster, residents, work("w", "a", 2, priority=60), pool, steps.append), sum(steps)


def test_a_look_at_many_candidates_counts_for_several(looks: list[int]) -> None:
    assert OWN > LARGE
    found, _ = search(due=OWN * 1000)
    assert found is not None
    assert sum(each.workload.project == "a" for each in found) == OWN
    assert 1 < len(looks) < LOOKS, "with few candidates there are so many more looks than the first"


def test_steps_stand_for_about_as_much_time_whatever_is_owed(looks: list[int]) -> None:
    """To take hundreds on trial and give them back takes longer for each of them than to do so with a few."""
    _, steps = search(due=OWN * 1000)
    assert steps > 2 * sum(looks)


def test_no_node_is_looked_at_where_all_who_owe_do_not_come_to_what_is_due(looks: list[int]) -> None:
    found, steps = search(due=OWN * 1000 + 1)
    assert found is None
    assert looks == []
    assert steps == search(due=0)[1] - sum(10 + each for each in looks)
