"""Quotas of CPU and memory cost a decision little: it counts and searches no more than without them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from api.scheduler.cluster import ClusterState
from api.scheduler.decide import decide
from api.scheduler.residents import Residents
from api.scheduler.snapshot import Bounds, ProjectState, Resource, Running, Snapshot, Workload
from api.scheduler.victim_search import Found, cheapest
from tests.unit.api.scheduler.world import SECOND, node, on, project, runs, work

NOW = 10_000
MANY = 40


def test_what_is_about_to_start_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many sessions are nominated for places that are being freed: twice the effort, or a little more."""
    few, many = (_amounts_asked(monkeypatch, count) for count in (MANY, 2 * MANY))
    assert many < 3 * few


def _amounts_asked(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    projects = project("a", count, cpu=Bounds(count * 1000)), project("b", 0)
    nodes = tuple(node(f"n{at}", 1) for at in range(count))
    leaving = [runs(work(f"r{at}", "b"), on(f"n{at}", 1), terminating=True) for at in range(count)]
    queue = [work(f"w{at}", "a", 1, at, cpu_milli=100) for at in range(2 * count)]
    asked: Counter[Resource] = Counter()
    amount = Workload.amount

    def counted(workload: Workload, resource: Resource) -> int:
        asked[resource] += 1
        return amount(workload, resource)

    with monkeypatch.context() as patch:
        patch.setattr(Workload, "amount", counted)
        decision = decide(Snapshot(NOW * SECOND, nodes, projects, tuple(leaving), tuple(queue)))
    assert len(decision.reservations) == count
    return asked.total()


def test_nobody_is_searched_for_where_nobody_is_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _searches(monkeypatch, within=True) == 0


def test_projects_with_nothing_beyond_share_what_was_searched_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody is beyond whose work is too small: that is found once for each way to ask, not for each project."""
    owners = project("idle", 0), replace(project("gpus", 0), weight=1)
    little = runs(work("little", "idle", 0, cpu_milli=1), on("n"))
    on_gpu = runs(work("on_gpu", "gpus", 1, cpu_milli=1), on("n", 1))
    assert 0 < _searches(monkeypatch, *owners, within=True, running=(little, on_gpu)) <= 4


def test_who_asks_for_nothing_of_its_quotas_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = project("m", 0, memory=Bounds(1))
    no_right = runs(work("no_right", "m", 0, cpu_milli=1), on("n"))
    assert _searches(monkeypatch, owner, within=True, running=(no_right,)) > 0


def test_who_is_beyond_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _searches(monkeypatch, within=False) > 0


def _searches(
    monkeypatch: pytest.MonkeyPatch, *more: ProjectState, within: bool, running: tuple[Running, ...] = ()
) -> int:
    """How often victims are searched for where many projects ask for more, with work within their quotas or not."""
    quotas = [project(f"p{at}", 0, cpu=Bounds(2000 if within or at else 500)) for at in range(MANY)]
    own = [runs(work(f"r{at}", f"p{at}", 0, cpu_milli=1000), on("n")) for at in range(MANY)]
    queue = [work(f"w{at}", f"p{at}", 0, NOW, cpu_milli=1000) for at in range(MANY)]
    nodes = (node("n", 1, cpu_milli=MANY * 1000 + 500),)
    searches: list[Workload] = []

    def counted(cluster: ClusterState, residents: Residents, workload: Workload, *args: Any) -> Found:
        searches.append(workload)
        return cheapest(cluster, residents, workload, *args)

    with monkeypatch.context() as patch:
        patch.setattr("api.scheduler.reclaim.cheapest", counted)
        decide(Snapshot(NOW * SECOND, nodes, (*quotas, *more), (*own, *running), tuple(queue)))
    return len(searches)
