"""Elastic gangs: they start with the least, grow while there is room, and shrink before anybody is evicted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.scheduler.elastic import parts, ranks_of
from api.scheduler.snapshot import Bounds, Cause, GpuState, NodeSnapshot, Workload
from tests.unit.api.scheduler.world import World, node, of_ranks, on, project, runs, work


def gang(id_: str, owner: str, least: int, most: int, gpus: float = 1, **more: object) -> Workload:
    return work(id_, owner, gpus, 0, replicas=least, min_replicas=least, max_replicas=most, **more)


def ranks(world: World, id_: str) -> tuple[int, ...]:
    return ranks_of(world.running[id_])


def test_it_starts_with_the_least_and_takes_what_is_free() -> None:
    world = World((node("n", 8),), (project("a", 4),))
    world.submit(gang("g", "a", 2, 6))
    first = world.step()
    assert len(first.placements["g"]) == 2
    world.settle()
    assert ranks(world, "g") == (0, 1, 2, 3, 4, 5)
    assert world.held()["a"] == 6000


def test_it_takes_no_more_than_its_project_may_hold() -> None:
    world = World((node("n", 8),), (project("a", 3, over_quota=False),))
    world.submit(gang("g", "a", 2, 6))
    world.settle()
    assert ranks(world, "g") == (0, 1, 2)


def test_it_grows_only_once_it_may() -> None:
    world = World((node("n", 4),), (project("a", 4),))
    world.running["g"] = replace(runs(gang("g", "a", 1, 4), on("n", 1)), grows_at=10_000_000)
    assert not world.step().grown
    world.now = 10
    assert list(world.step().grown["g"]) == [1, 2, 3]


def test_other_work_of_its_project_goes_first() -> None:
    """It waits for two GPUs on one node; the gang does not take those that become free one by one."""
    world = World((node("m", 2), node("n", 2)), (project("a", 4),))
    for name, where in (("1", "m"), ("2", "n")):
        world.running[name] = runs(work(name, "a"), on(where, 1))
    world.running["g"] = replace(runs(gang("g", "a", 1, 3), on("m", 0, 1)), grows_at=1)
    world.submit(work("large", "a", 2))
    assert not world.step().grown


def test_two_gangs_share_what_is_free() -> None:
    world = World((node("n", 8),), (project("a", 0, weight=1), project("b", 0, weight=1)))
    world.submit(gang("g", "a", 1, 8), gang("h", "b", 1, 8))
    world.settle()
    assert world.held() == {"a": 4000, "b": 4000}


def test_an_owner_that_returns_takes_containers_and_leaves_the_gang() -> None:
    world = World((node("n", 8),), (project("a", 2), project("b", 6)))
    world.submit(gang("g", "a", 2, 8))
    world.settle()
    world.submit(*(work(str(at), "b") for at in range(3)))
    assert set(world.settle()) == {"g"}
    assert world.running.keys() == {"g", "0", "1", "2"}
    assert world.running["g"].workload.replicas == 5
    assert {0, 1} <= set(ranks(world, "g"))


def test_a_container_goes_before_a_session_that_costs_the_same() -> None:
    world = World((node("n", 4),), (project("a", 0, weight=1), project("b", 2)))
    world.running["1"] = runs(work("1", "a", 2), on("n", 1, 1))
    held = of_ranks(runs(gang("g", "a", 1, 2), on("n", 0, 0, 1), on("n", 0, 0, 0, 1)), {})
    assert held.placements == ()
    world.running["g"] = runs(replace(gang("g", "a", 1, 2), replicas=2), on("n", 0, 0, 1), on("n", 0, 0, 0, 1))
    world.submit(work("2", "b"))
    (reclaim,) = world.step().reclaims
    assert (reclaim.victim, reclaim.ranks) == ("g", (1,))


def test_one_at_its_least_is_evicted_as_a_whole_and_starts_with_the_least_again() -> None:
    world = World((node("n", 4),), (project("a", 0, weight=1), project("b", 4)))
    world.submit(gang("g", "a", 2, 4))
    world.settle()
    assert world.running["g"].workload.replicas == 4
    world.submit(work("1", "b", 4))
    decision = world.step()
    assert [each.ranks for each in decision.reclaims] == [()]
    world.settle()
    assert world.queue["g"].replicas == 2


def test_its_own_project_gets_what_the_gang_can_do_without() -> None:
    """The gang has all that its project may hold; of equal priority nobody would be stopped for the other."""
    world = World((node("n", 4),), (project("a", 4, over_quota=False),))
    world.submit(gang("g", "a", 1, 4))
    world.settle()
    world.submit(work("1", "a", 2))
    decision = world.step()
    (reclaim,) = decision.reclaims
    assert (reclaim.victim, len(reclaim.ranks)) == ("g", 2)
    assert reclaim.reason == "1 of a waits, and the gang goes on with fewer containers"
    world.settle()
    assert world.running.keys() == {"g", "1"}
    assert world.running["g"].workload.replicas == 2


def test_what_stays_keeps_its_rank_and_what_comes_takes_the_lowest_that_is_free() -> None:
    """A container in the middle is on the node that somebody else has a right to."""
    world = World((node("m", 2), node("n", 2)), (project("a", 2), project("b", 2)))
    places = on("m", 1), on("n", 1), on("n", 0, 1), on("m", 0, 1)
    world.running["g"] = replace(runs(replace(gang("g", "a", 1, 4), replicas=4), *places), grows_at=1)
    world.submit(work("1", "b", 2))
    world.settle()
    assert ranks(world, "g") == (0, 3)
    world.delete("1")
    world.settle()
    assert ranks(world, "g") == (0, 1, 2, 3)
    assert world.running["g"].placements[3] == places[3]


def test_all_its_nodes_are_in_one_group() -> None:
    groups = ("red", "blue")
    nodes = tuple(node(name, 2, groups=(name,)) for name in groups)
    world = World(nodes, (project("a", 4),))
    world.submit(gang("g", "a", 1, 4, groups=groups))
    world.settle()
    assert {place.node for place in world.running["g"].placements} == {"red"}


def test_containers_that_cannot_meet_are_not_made() -> None:
    gpus = tuple(GpuState(at, f"n-{at}") for at in range(2))
    world = World((NodeSnapshot("n", gpus, apart=True), node("m", 2)), (project("a", 4),))
    world.running["g"] = replace(runs(gang("g", "a", 1, 4), on("m", 1)), grows_at=1)
    world.settle()
    assert {place.node for place in world.running["g"].placements} == {"m"}


def test_the_parts_hold_what_the_whole_does() -> None:
    whole = runs(replace(gang("g", "a", 2, 4, cpu_milli=500), replicas=4), *[on("n", 1)] * 4)
    core, *extras = parts(replace(whole, leaving=(3,)))
    assert core.workload.replicas == 2
    assert core.extras == ("g/2",)
    assert [each.terminating for each in extras] == [False, True]
    assert sum(each.workload.total_milli for each in (core, *extras)) == whole.workload.total_milli


@pytest.mark.parametrize("terminating", [False, True])
def test_what_is_not_elastic_or_ends_is_one_part(*, terminating: bool) -> None:
    plain = runs(work("1", "a", replicas=2), on("n", 1), on("n", 0, 1), terminating=terminating)
    assert parts(plain) == (plain,)
    ends = replace(runs(gang("g", "a", 1, 2), on("n", 1), on("n", 0, 1)), terminating=True)
    assert parts(ends) == (ends,)


def test_gangs_in_a_full_group_hide_no_other_one() -> None:
    many = 100
    nodes = node("m", many, groups=("x",)), node("n", 4, groups=("y",))
    world = World(nodes, (project("a", many), project("b", 1)), now=10)
    for at in range(many):
        each = gang(f"g{at:02}", "a", 1, 2, groups=("x",), grouped_only=True)
        world.running[each.id] = replace(runs(each, on("m", *[0] * at, 1)), grows_at=1)
    world.running["h"] = replace(runs(gang("h", "b", 1, 4, groups=("y",)), on("n", 1)), grows_at=1)
    world.step()
    assert ranks(world, "h") == (0, 1, 2, 3)


@pytest.mark.parametrize(("gpus", "replicas"), [(1, 4), (2, 2), (4, 1), (1, 3), (0.5, 8)])
def test_a_guarantee_has_what_a_gang_of_parts_grew_to_however_it_lies(gpus: float, replicas: int) -> None:
    """The first container cannot go, and what lies beside it is of no use: that is not given up in vain."""
    world = World((node("m", 4), node("n", 4)), (project("a", 4), project("b", 4)))
    world.submit(gang("g", "a", 1, 16, 0.5))
    world.settle()
    world.submit(work("owner", "b", gpus, world.now, replicas=replicas))
    world.settle()
    assert "owner" in world.running
    assert world.held()["a"] == 8000 - round(1000 * gpus) * replicas


def grown_beside(asked: Workload, *others: Workload, **owner: object) -> World:
    """A gang of a project runs beside others of it on the first of two nodes, and one more asks for something."""
    world = World((node("m", 4), node("n", 4)), (project("a", **owner), project("b", 0, weight=1)), now=100)  # type: ignore[arg-type]
    world.running["g"] = replace(runs(gang("g", "a", 1, 8, 0.5), on("m", 0.5)), grows_at=1)
    for at, each in enumerate(others, start=1):
        world.running[each.id] = runs(each, on("m", *[0] * at, *[1] * int(each.gpu_milli / 1000)))
    world.submit(asked)
    return world


@pytest.mark.parametrize(
    ("owner", "asked"),
    [
        pytest.param({"gpus": 1}, work("w", "a", 1, preemptible=False), id="the quota is full of what stays"),
        pytest.param({"gpus": 1, "limit_milli": 5000}, work("w", "a", 6), id="more than its project may ever have"),
        pytest.param({"gpus": 5, "over_quota": False}, work("w", "a", 4, 100), id="its project holds too much as yet"),
    ],
)
def test_it_grows_beside_work_of_its_project_that_would_not_start_without_it(
    owner: dict[str, object], asked: Workload
) -> None:
    stays = work("s", "a", 1, preemptible=False)
    world = grown_beside(asked, stays, **owner)
    world.settle()
    assert len(ranks(world, "g")) == 8
    assert "w" in world.queue


@pytest.mark.parametrize("over_quota", [True, False])
def test_what_it_has_grown_by_is_given_up_for_whom_its_project_may_have_by_now(over_quota: bool) -> None:
    """Once what stays has ended there is room for the one that waits: the least that the gang can give up for it."""
    stays = work("s", "a", 2, preemptible=False)
    asked = work("w", "a", 4, preemptible=False, within_required=True)
    world = grown_beside(asked, stays, gpus=5, over_quota=over_quota)
    world.settle()
    assert len(ranks(world, "g")) == (8 if over_quota else 6)
    assert world.decisions[-1].pending_reasons["w"].cause is Cause.QUOTA
    world.delete("s")
    world.settle()
    assert "w" in world.running


def test_it_grows_no_further_where_what_it_can_do_without_is_in_the_way_of_other_work() -> None:
    """It may be stopped a minute after its start: until then it takes no more from its project."""
    world = World((node("m", 8),), (project("a", 4, over_quota=False, min_runtime_s=60),), now=10)
    world.running["g"] = replace(runs(replace(gang("g", "a", 1, 4), replicas=2), on("m", 1), on("m", 0, 1)), grows_at=1)
    world.submit(work("w", "a", 3))
    assert world.step().not_grown == {"g": "other work of a waits, and goes first"}
    world.submit(work("larger", "a", 6))
    del world.queue["w"]
    assert not world.step().grown, "what it would take now it could not give up yet"
    world.now = 60
    assert list(world.step().grown["g"]) == [2, 3]


def test_work_that_asks_for_what_no_quota_of_cpu_has_left_goes_first() -> None:
    """Its guarantee is of CPU, of which a gang that grows takes some."""
    cpu = Bounds(4000, None)
    world = World((node("m", 8, cpu_milli=8000),), (project("a", 8, over_quota=False, cpu=cpu),), now=100)
    core = gang("g", "a", 1, 4, cpu_milli=1000)
    world.running["g"] = replace(runs(core, on("m", 1)), grows_at=1)
    world.running["s"] = runs(work("s", "a", 0, cpu_milli=1000), on("m"))
    world.submit(work("w", "a", 0, cpu_milli=3000))
    assert not world.step().grown
    world.queue = {"never": work("never", "a", 0, cpu_milli=5000)}
    assert world.step().grown


def test_what_a_gang_has_grown_by_takes_no_right_from_other_work_of_its_project() -> None:
    """It has grown on one node, and who goes beyond its quota fills the other one, which alone will do."""
    nodes = node("m", 4, groups=("red",)), node("n", 2, groups=("blue",))
    world = World(nodes, (project("a", 3), project("b", 0, weight=1)), now=100)
    places = [on("m", *[0] * at, 1) for at in range(4)]
    world.running["g"] = runs(replace(gang("g", "a", 1, 4, groups=("red",)), replicas=4), *places)
    world.running["b"] = runs(work("b", "b", 2), on("n", 1, 1))
    world.submit(work("w", "a", 2, groups=("blue",), grouped_only=True))
    world.settle()
    assert "w" in world.running
    assert len(ranks(world, "g")) == 1
    assert {place.node for place in world.running["b"].placements} == {"m"}, "and that one has what they leave"
