"""Growth on large clusters: whose turn it is, and what it costs, in counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from api.scheduler import grow
from api.scheduler.cluster import ClusterState
from api.scheduler.decide import decide
from api.scheduler.draft import Draft
from api.scheduler.elastic import missing_ranks, one_more, ranks_of
from api.scheduler.ledger import Ledger
from api.scheduler.snapshot import DomainState, GpuState, NodeSnapshot, ProjectState, Running, Snapshot
from common.gpu.kinds import Enforcement
from tests.unit.api.scheduler.world import World, node, on, project, runs, work


def one_a_node(count: int, most: int = 64) -> Snapshot:
    """A cluster with one gang of a project on each node, which may grow into its seven free GPUs."""
    gangs = tuple(
        Running(work(f"e{at}", "a", min_replicas=1, max_replicas=most), (on(f"n{at}", 1),), 0, grows_at=1)
        for at in range(count)
    )
    return Snapshot(10**12, tuple(node(f"n{at}") for at in range(count)), (project("a", 0, weight=1),), gangs)


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, act: Callable[[], object]) -> int:
    """Return how often a method is called while `act` runs."""
    count, method = 0, getattr(owner, name)

    def noted(*args: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        return method(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, noted)
        act()
    return count


def test_what_a_container_costs_does_not_grow_with_the_gangs(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = one_a_node(8), one_a_node(32)
    for owner, name in ((Ledger, "ratios"), (ClusterState, "fitting")):
        small = counted(monkeypatch, owner, name, lambda: decide(few))
        large = counted(monkeypatch, owner, name, lambda: decide(many))
        assert 0 < large <= 5 * small, name


def test_what_is_left_out_has_its_turn_in_the_next_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grow, "MOST", 5)
    snapshot, numbers = one_a_node(4), []
    while grown := decide(snapshot).grown:
        numbers.append(sum(map(len, grown.values())))
        snapshot = replace(
            snapshot, running=tuple(with_all_of(each, grown.get(each.workload.id)) for each in snapshot.running)
        )
    assert numbers == [5, 5, 5, 5, 5, 3]


def with_all_of(running: Running, grown: Any) -> Running:
    """Return a gang that has got what was decided for it."""
    ranks = {**dict(zip(ranks_of(running), running.placements, strict=True)), **(grown or {})}
    workload = replace(running.workload, replicas=len(ranks))
    return replace(running, workload=workload, placements=tuple(ranks.values()), ranks=tuple(ranks))


def test_each_container_goes_to_the_gang_that_is_first_if_all_are_ranked_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    differ = 0
    for seed in range(60):
        snapshot = any_gangs(Random(seed))
        with monkeypatch.context() as patch:
            patch.setattr("api.scheduler.cycle.grow", grow_by_ranking_all)
            expected = decide(snapshot)
        decision = decide(snapshot)
        assert (decision.grown, decision.log) == (expected.grown, expected.log), seed
        differ += len(expected.grown) > 1
    assert differ > 30


def any_gangs(random: Random) -> Snapshot:
    """Gangs of projects of some domains, of several sizes and priorities, on a cluster with some room."""
    names = ("a", "b", "c", "d")
    domains = (DomainState("one", 2000), DomainState("two", 4000, limit_milli=random.choice((None, 12_000))))
    projects = tuple(
        ProjectState(
            name,
            random.choice((0, 1000, 3000)),
            weight=random.choice((None, 0, 1, 2)),
            limit_milli=random.choice((None, None, 6000)),
            had_milli=random.choice((0, 500)),
            domain=random.choice(("", "one", "two")),
        )
        for name in names
    )
    gangs = []
    for at in range(random.randint(2, 8)):
        gpus = random.choice((0.5, 1, 1, 2))
        more = {"priority": random.choice((10, 10, 50)), "min_replicas": 1, "max_replicas": random.randint(2, 9)}
        workload = work(f"e{at}", random.choice(names), gpus, random.randint(0, 5), **more)
        shares = (gpus,) if gpus <= 1 else (1.0,) * round(gpus)
        gangs.append(Running(workload, (on(f"n{at}", *shares),), 0, grows_at=1))
    nodes = tuple(node(f"n{at}", random.choice((2, 4, 4))) for at in range(len(gangs)))
    return Snapshot(10**12, nodes, projects, tuple(gangs), domains=domains)


def grow_by_ranking_all(draft: Draft, growing: Any) -> None:
    """Give containers one after the other as the product does, with all gangs ranked anew for each: slow, and plain."""
    ledger = draft.ledger

    def key(gang: grow._Gang) -> Any:
        more = one_more(gang.running, 0)
        project = more.project
        return not ledger.in_quota(more), *ledger.ratios(project), ledger.had(project), gang.rank

    gangs = [grow._Gang(each, missing_ranks(each)) for each in growing if grow._may_grow(draft, each)]
    while gangs:
        first = min(gangs, key=key)
        if not grow._grow(draft, first, {}) or not first.ranks:
            gangs.remove(first)


def test_a_gang_grows_onto_a_shared_gpu_where_a_slice_is_too_much_for_its_project() -> None:
    sliced = GpuState(1, "m-1", enforcement=Enforcement.MIG, capacity_milli=500, slice=True)
    home = NodeSnapshot("m", (GpuState(0, "m-0"), sliced))
    world = World((home,), (project("a", 0.6, over_quota=False),), now=1)
    workload = work("g", "a", 0.3, min_replicas=1, max_replicas=4)
    world.running["g"] = replace(runs(workload, on("m", 0.3)), grows_at=1, reach=("m",))
    assert world.step().grown == {"g": {1: on("m", 0.3)}}
