"""What projects had lately, and domains whose projects share inside of them: tables and small worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.scheduler.fairness import ProjectDemand
from api.scheduler.shares import Shares
from api.scheduler.snapshot import Cause, DomainState, ProjectState, Snapshot
from tests.unit.api.scheduler.world import World, node, project, work


def demand(name: str, gpus: float, held: float = 0, unit: float = 1, **more: object) -> ProjectDemand:
    quota = more.pop("quota", 0)
    state = ProjectState(name, quota * 1000, **more)  # type: ignore[arg-type, operator]
    return ProjectDemand(state, round(gpus * 1000), round(held * 1000), round(unit * 1000))


class Site(World):
    """A world with domains that share."""

    domains: tuple[DomainState, ...] = ()

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), domains=self.domains)


@pytest.mark.parametrize(
    ("had", "expected"),
    [
        pytest.param((0, 0), (4000, 4000), id="nobody had anything"),
        pytest.param((3000, 3000), (4000, 4000), id="both had as much"),
        pytest.param((3000, 1000), (2000, 6000), id="three of four parts: one of four to come"),
        pytest.param((5000, 0), (0, 8000), id="all of it: nothing while the other one wants it"),
    ],
)
def test_who_had_more_of_the_spare_has_less_of_it_to_come(had: tuple[int, int], expected: tuple[int, int]) -> None:
    demands = [demand(name, 8, weight=1, had_milli=milli) for name, milli in zip("ab", had, strict=True)]
    shares = Shares.of(8000, demands, {})
    assert tuple(shares.exact[name] for name in "ab") == expected
    assert tuple(shares.of_now[name] for name in "ab") == (4000, 4000)


def test_what_was_had_changes_no_guarantee() -> None:
    demands = [demand("a", 8, quota=4, had_milli=100_000), demand("b", 8, quota=2)]
    assert dict(Shares.of(8000, demands, {}).exact) == {"a": 4667, "b": 3333}, "of the two that are spare one third"


def test_projects_that_want_the_whole_cluster_take_turns() -> None:
    """Two equal projects, always the first one sooner: each time who had less goes next, and nobody is stopped."""
    world = World((node("m", 4),), (project("a", 0), project("b", 0)))
    order = []
    for turn in range(12):
        for name in "ab":
            world.submit(*[work(f"{name}{turn}", name, 4, turn if name == "a" else turn + 100)])
        placed = next(iter(world.step().placements))
        assert not world.decisions[-1].reclaims
        order.append(placed[0])
        held = world.held()
        world.projects = tuple(
            replace(each, had_milli=(each.had_milli + held[each.name]) // 2) for each in world.projects
        )
        world.delete(placed)
        world.step()
    assert order == ["a", "b"] * 6


def test_nobody_is_stopped_for_what_its_project_had() -> None:
    world = World((node("m", 4),), (project("a", 0), replace(project("b", 0), had_milli=0)))
    world.submit(*(work(f"a{at}", "a", at=at) for at in range(2)), *(work(f"b{at}", "b", at=at) for at in range(4)))
    world.settle()
    world.projects = (replace(world.projects[0], had_milli=4000), world.projects[1])
    assert not world.step().reclaims, "a has no more than its half"
    world.delete("a0")
    world.submit(work("a9", "a", at=0))
    world.settle()
    assert sorted(world.running) == ["a1", "b0", "b1", "b2"], "what becomes free is b's"


def test_domains_divide_first_and_projects_inside_of_them() -> None:
    domains = {"x": DomainState("x", weight=1), "y": DomainState("y", weight=1)}
    demands = [demand("a", 8, domain="x"), demand("b", 8, domain="x"), demand("c", 8, domain="y")]
    shares = Shares.of(8000, demands, domains)
    assert dict(shares.fair) == {"a": 2000, "b": 2000, "c": 4000}
    assert dict(shares.domains) == {"x": 4000, "y": 4000}


def test_a_domain_has_its_quota_before_anything_is_spare() -> None:
    domains = {"x": DomainState("x", quota_milli=6000, weight=1)}
    demands = [demand("a", 8, domain="x"), demand("b", 8, domain="x", quota=2), demand("c", 8, weight=1)]
    fair = Shares.of(8000, demands, domains).fair
    assert fair["a"] + fair["b"] == 7000
    assert fair["b"] >= 2000


def test_the_quota_of_a_domain_is_taken_back_from_who_uses_it_meanwhile() -> None:
    world = Site((node("m", 4),), (ProjectState("a", 0, domain="x"), ProjectState("c", 0, weight=9)))
    world.domains = (DomainState("x", quota_milli=3000),)
    world.submit(*(work(f"c{at}", "c") for at in range(4)))
    world.settle()
    world.submit(*(work(f"a{at}", "a", at=1) for at in range(4)))
    world.settle()
    assert world.held() == {"a": 3000, "c": 1000}


def test_who_is_guaranteed_something_takes_it_from_a_sibling_where_the_domain_is_at_its_limit() -> None:
    """Half of the cluster is free, and c goes beyond its quota, too: neither helps."""
    projects = ProjectState("a", 2000, domain="x"), ProjectState("b", 2000, domain="x"), ProjectState("c", 0)
    world = Site((node("m", 8), node("n", 8)), projects)
    world.domains = (DomainState("x", quota_milli=4000, limit_milli=4000),)
    world.submit(*(work(f"a{at}", "a", at=at) for at in range(6)), *(work(f"c{at}", "c") for at in range(3)))
    world.settle()
    assert world.held() == {"a": 4000, "b": 0, "c": 3000}
    waits = world.decisions[-1].pending_reasons["a5"]
    assert waits.cause is Cause.QUOTA
    assert waits.reason == (
        "the projects of x have, or are about to, 4 GPUs of the 4 GPUs that the domain may have; "
        "wait, or ask for a larger limit of x"
    )
    world.submit(work("b0", "b", 2, at=9))
    world.settle()
    assert world.held() == {"a": 2000, "b": 2000, "c": 3000}


def test_what_can_never_be_within_the_limit_of_the_domain_is_told_so() -> None:
    world = Site((node("m", 8),), (ProjectState("a", 2000, domain="x"),))
    world.domains = (DomainState("x", quota_milli=2000, limit_milli=4000),)
    world.submit(work("a", "a", 5))
    assert world.step().pending_reasons["a"].reason == (
        "the projects of x may have 4 GPUs together, and the session asks for 5 GPUs; "
        "ask for fewer, or for a larger limit of x"
    )


def test_a_guarantee_takes_nothing_of_a_part_of_a_domain_s_quota() -> None:
    """The sessions of `a` would be the first to go by their priority: they are what its domain is guaranteed."""
    projects = ProjectState("a", 0, domain="x"), ProjectState("c", 2000), ProjectState("d", 0)
    world = Site((node("m", 4),), projects)
    world.domains = (DomainState("x", quota_milli=2000),)
    world.submit(*(work(f"a{at}", "a", priority=10) for at in range(2)), *(work(f"d{at}", "d") for at in range(2)))
    world.settle()
    world.submit(*(work(f"c{at}", "c", at=1) for at in range(2)))
    assert sorted(world.settle()) == ["d0", "d1"]
    assert world.held() == {"a": 2000, "c": 2000, "d": 0}


def test_a_domain_keeps_below_its_limit_until_those_have_ended_who_make_room() -> None:
    """What is nominated counts once, whatever other projects the domain has."""
    world = Site(
        (node("n", 4),), (project("p", 0, domain="d"), project("q", 2, domain="d"), project("r", 0, domain="d"))
    )
    world.domains = (DomainState("d", 2000, 1, 2000),)
    world.submit(work("p1", "p"), work("p2", "p"))
    world.settle()
    world.submit(work("q1", "q", 2))
    assert len(world.step().reclaims) == 2
    assert not world.step().placements, "both still hold what they had"
    assert set(world.step().placements) == {"q1"}
