"""A weight of 0 is no part of what is spare: such a project has its guarantee, and what nobody with a part wants."""

from __future__ import annotations

from collections import Counter

import pytest

from api.scheduler.fairness import ProjectDemand, fair_shares, in_whole_workloads
from api.scheduler.shares import Shares
from api.scheduler.snapshot import Bounds, DomainState, ProjectState
from tests.unit.api.scheduler.world import World, node, project, work


def sharing(gpus: int, quota: int, weight: int | None) -> World:
    """Return a cluster on which `a` has this quota and weight and asks for all, beside `b` of a weight of 1."""
    world = World((node("n", gpus),), (project("a", quota, weight=weight), project("b", 0, weight=1)))
    world.submit(*(work(f"a{at}", "a") for at in range(gpus)))
    return world


@pytest.mark.parametrize(
    ("gpus", "quota", "weight", "expected"),
    [
        pytest.param(4, 1, 0, {"a": 1000, "b": 3000}, id="its guarantee alone"),
        pytest.param(8, 4, 0, {"a": 4000, "b": 4000}, id="whatever its quota"),
        pytest.param(10, 4, None, {"a": 8800, "b": 1200}, id="by its quota"),
        pytest.param(8, 0, 0, {"a": 0, "b": 8000}, id="neither"),
    ],
)
def test_of_the_spare_it_has_what_nobody_with_a_part_wants(
    gpus: int, quota: int, weight: int | None, expected: dict[str, int]
) -> None:
    demands = [
        ProjectDemand(ProjectState("a", quota * 1000, weight=weight), gpus * 1000),
        ProjectDemand(ProjectState("b", 0, weight=1), gpus * 1000),
    ]
    assert fair_shares(gpus * 1000, demands) == expected


def test_several_without_a_part_have_what_is_left_in_equal_parts() -> None:
    demands = [
        ProjectDemand(ProjectState("a", 4000, weight=0), 16_000),
        ProjectDemand(ProjectState("b", 1000, weight=0), 16_000),
        ProjectDemand(ProjectState("c", 0), 16_000),
        ProjectDemand(ProjectState("d", 2000), 4000),
    ]
    assert fair_shares(15_000, demands) == {"a": 6000, "b": 3000, "c": 2000, "d": 4000}


def test_a_remainder_goes_to_who_has_a_part() -> None:
    """Of two and a half guaranteed a whole session can take two, and of the rest nothing is its own."""
    demands = [
        ProjectDemand(ProjectState("a", 2500, weight=0), 8000, 3000, 1000),
        ProjectDemand(ProjectState("b", 0, weight=1), 8000, 0, 1000),
        ProjectDemand(ProjectState("c", 0, weight=1), 8000, 0, 1000),
    ]
    shares = in_whole_workloads(fair_shares(5500, demands), demands)
    assert shares == {"a": 2500, "b": 2000, "c": 1000}


@pytest.mark.parametrize(("gpus", "quota", "left"), [(4, 1, 1000), (8, 4, 4000)])
def test_alone_it_takes_all_and_gives_back_all_but_its_guarantee(gpus: int, quota: int, left: int) -> None:
    world = sharing(gpus, quota, 0)
    world.settle()
    assert world.held() == {"a": gpus * 1000, "b": 0}, "nothing idles"
    world.submit(*(work(f"b{at}", "b", at=1) for at in range(gpus)))
    world.settle()
    assert world.held() == {"a": left, "b": gpus * 1000 - left}


def test_both_at_once_it_starts_no_more_than_its_guarantee_at_the_cost_of_the_other() -> None:
    world = sharing(4, 1, 0)
    world.submit(*(work(f"b{at}", "b", at=1) for at in range(4)))
    assert world.settle() == [], "nobody has to be stopped for it"
    assert world.held() == {"a": 1000, "b": 3000}


def test_it_takes_nothing_back_beyond_its_guarantee() -> None:
    world = World((node("n", 4),), (project("a", 1, weight=0), project("b", 0, weight=1)))
    world.submit(*(work(f"b{at}", "b") for at in range(4)))
    world.settle()
    world.submit(*(work(f"a{at}", "a", at=1) for at in range(4)))
    world.settle()
    assert world.held() == {"a": 1000, "b": 3000}


def test_a_domain_without_a_part_has_its_quota_alone_where_others_want_the_rest() -> None:
    demands = [
        ProjectDemand(ProjectState("a", 0, domain="x"), 8000, unit_milli=1000),
        ProjectDemand(ProjectState("b", 0, domain="y"), 8000, unit_milli=1000),
    ]
    domains = {"x": DomainState("x", 4000, weight=0), "y": DomainState("y", 1000)}
    assert dict(Shares.of(8000, demands, domains).fair) == {"a": 4000, "b": 4000}


def test_inside_of_a_domain_a_project_without_a_part_comes_last_to_its_quota() -> None:
    demands = [
        ProjectDemand(ProjectState("a", 1000, weight=0, domain="x"), 8000, unit_milli=1000),
        ProjectDemand(ProjectState("b", 1000, domain="x"), 8000, unit_milli=1000),
    ]
    shares = Shares.of(8000, demands, {"x": DomainState("x", 4000)})
    assert (dict(shares.fair), dict(shares.guaranteed)) == ({"a": 1000, "b": 7000}, {"a": 1000, "b": 3000})


def test_of_spare_cpu_it_has_what_nobody_with_a_part_wants() -> None:
    owners = (project("a", 4, cpu=Bounds(1000), weight=0), project("b", 0, weight=1))
    world = World((node("n", 0, cpu_milli=4000),), owners)
    world.submit(*(work(f"a{at}", "a", 0, cpu_milli=1000) for at in range(4)))
    world.submit(*(work(f"b{at}", "b", 0, 9, cpu_milli=1000) for at in range(2)))
    world.settle()
    assert Counter(each.workload.project for each in world.running.values()) == {"a": 2, "b": 2}
