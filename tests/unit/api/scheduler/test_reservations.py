"""Reservations: what they leave idle is bounded, what ends before goes first, and they stay where they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.scheduler.reserve import RESERVED_FOR, RESERVED_PART
from api.scheduler.snapshot import Cause, ProjectState, Running, SchedulerSettings
from tests.unit.api.scheduler.world import SECOND, World, node, on, project, runs, work

NODES, GPUS = 20, 8
NOW = 10_000


def test_many_who_wait_for_a_node_each_leave_little_of_the_cluster_idle() -> None:
    """On each of 20 nodes one GPU is in use for a time that nobody knows, and 20 projects wait for a whole node."""
    nodes = tuple(node(f"n{at:02}", GPUS) for at in range(NODES))
    owners = tuple(project(f"p{at:02}", GPUS + 1) for at in range(NODES))
    world = World(nodes, owners, now=NOW)
    for at, each in enumerate(nodes):
        place = on(each.name, 1)
        world.running[f"r{at:02}"] = runs(work(f"r{at:02}", f"p{at:02}", preemptible=False), place)
        world.submit(work(f"node{at:02}", f"p{at:02}", GPUS, NOW - 1000))
    world.submit(*(work(f"s{at:03}", f"p{at % NODES:02}", 1, NOW - 900 + at) for at in range(NODES * GPUS)))
    world.settle()
    idle = NODES * GPUS - sum(world.held().values()) // 1000
    assert 0 < idle <= NODES * GPUS // RESERVED_PART
    assert {id_[:4] for id_ in world.decisions[-1].reservations} == {"node"}


def test_one_reservation_is_made_in_a_cluster_of_any_size() -> None:
    world = World((node("n", 4),), (project("a", 4), project("b", 4)), now=NOW)
    world.running["r"] = runs(work("r", "b", 1, preemptible=False), on("n", 1))
    world.submit(work("large", "a", 4, NOW - 100), work("small", "b", 1, NOW))
    waits = world.step().pending_reasons
    assert waits["small"].cause is Cause.RESERVED


def test_only_the_first_of_a_project_has_places_reserved() -> None:
    nodes = tuple(node(f"n{at:02}", 2) for at in range(2 * RESERVED_PART))
    world = World(nodes, (project("a", 4 * RESERVED_PART), project("b", 0)), now=NOW)
    for each in nodes:
        world.running[each.name] = runs(work(each.name, "c", preemptible=False), on(each.name, 1))
    world.submit(work("first", "a", 2, NOW - 100), work("second", "a", 2, NOW - 99))
    world.submit(*(work(f"b{at:02}", "b", 1, NOW) for at in range(2 * RESERVED_PART)))
    decision = world.step()
    assert set(decision.reservations) == {"first"}
    assert len(decision.placements) == 2 * RESERVED_PART - 1


@pytest.mark.parametrize(("limit_s", "goes"), [(0, False), (99, True), (100, True), (101, False)])
def test_what_ends_before_goes_first(limit_s: int, goes: bool) -> None:
    world = World((node("n", 4),), (project("a", 4), project("b", 4)), now=NOW)
    world.running["r"] = Running(
        work("r", "b", 3, preemptible=False), (on("n", 1, 1, 1),), 0, ends_at=(NOW + 100) * SECOND
    )
    world.submit(work("large", "a", 4, NOW - 100), work("small", "b", 1, NOW, limit_s=limit_s))
    decision = world.step()
    assert ("small" in decision.placements) == goes
    assert "large" in decision.reservations


def test_places_whose_end_is_known_or_that_can_be_taken_back_go_first() -> None:
    """The session on `m` holds more than the one on `n`, which may stay for ever."""
    world = World((node("m", 4), node("n", 4)), (project("a", 4), project("b", 4)), now=NOW)
    known, unknown = work("m", "b", 2, preemptible=False), work("n", "b", 1, preemptible=False)
    world.running["m"] = Running(known, (on("m", 1, 1),), 0, ends_at=(NOW + 9) * SECOND)
    world.running["n"] = runs(unknown, on("n", 1))
    world.submit(work("large", "a", 4, NOW - 100))
    assert [place.node for place in world.step().reservations["large"]] == ["m"]


def test_a_reservation_stays_where_it_is() -> None:
    """Less and less is in the way on the other node, and yet who passes by need not move."""
    world = World((node("m", 4), node("n", 4)), (project("a", 4), project("b", 4)), SchedulerSettings(), NOW)
    world.running["m"] = runs(work("m", "b", 1, preemptible=False), on("m", 1))
    for at in range(2):
        world.running[f"n{at}"] = runs(work(f"n{at}", "b", 1, preemptible=False), on("n", *[0] * at, 1))
    world.submit(work("large", "a", 4, NOW - 100))
    first = world.step().reservations["large"]
    assert [place.node for place in first] == ["m"]
    world.running["m2"] = runs(work("m2", "b", 2, preemptible=False), on("m", 0, 1, 1))
    world.delete("n0")
    world.step()
    assert world.step().reservations["large"] == first


def test_room_that_is_made_for_one_is_not_for_another_with_places_reserved() -> None:
    """`a-waits` has the place of one that ends later; the place that is freed sooner is the other's."""
    world = World((node("n", 1),), (project("a", 2),), SchedulerSettings(0, 0), NOW)
    ends = work("ends", "a", 0.5, priority=90, preemptible=False)
    world.running["ends"] = Running(ends, (on("n", 0.5),), 0, ends_at=(NOW + 100) * SECOND)
    world.running["low"] = runs(work("low", "a", 0.5, priority=10), on("n", 0.5))
    world.submit(work("a-waits", "a", 0.5, NOW - 1000, priority=10))
    world.submit(work("high", "a", 0.1, NOW, priority=90))
    assert {reclaim.beneficiary for reclaim in world.step().reclaims} == {"high"}
    assert world.settle() == [], "nobody is stopped once more"
    assert "high" in world.running


def test_what_ends_before_takes_no_place_that_is_in_use() -> None:
    """The GPU is kept for a fair share when it is free; who passes over that does not give it back twice."""
    projects = (project("a", 0, weight=1), project("b", 1), project("c", 0))
    world = World((node("m", 1), node("n", 1)), projects, now=NOW)
    world.running["m"] = runs(work("m", "c", 1, preemptible=False), on("m", 1))
    world.running["r"] = Running(work("r", "c", 1, preemptible=False), (on("n", 1),), 0, ends_at=(NOW + 100) * SECOND)
    world.submit(work("waits", "a", 1, NOW - 1000), work("short", "b", 1, NOW, limit_s=50))
    assert not world.step().placements


def test_a_reservation_moves_away_from_room_that_is_made_for_another() -> None:
    """Both wait for the one GPU; who is older reclaims it, and its place is no more anybody else's."""
    world = World((node("n", 1), node("m", 1, open=False)), (project("a", 1), project("b", 2)), now=NOW)
    world.running["low"] = runs(work("low", "b", 1, priority=10), on("n", 1))
    world.submit(work("a-waits", "a", 1, NOW - 1000))
    assert set(world.step().reservations) == {"a-waits"}
    world.submit(work("high", "b", 1, NOW - 2000, priority=90))
    assert set(world.step().reservations) == {"high"}
    world.settle()
    assert set(world.running) == {"high"}


RDMA = "rdma"


@pytest.mark.parametrize(
    ("asked", "before", "after"),
    [
        ({"traits": (RDMA,)}, {}, {"lacks": ((RDMA, "no InfiniBand"),)}),
        ({"groups": ("red",)}, {"groups": ("red",)}, {"groups": ("blue",)}),
    ],
)
def test_places_are_kept_only_where_a_workload_may_still_go(
    asked: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    """A gang is nominated for two nodes, and one of them loses what it needs while they are being freed."""
    nodes = tuple(node(name, 1, **before) for name in "lmn")
    world = World(nodes, (project("a", 2), project("b", 0), project("c", 1)), now=NOW)
    world.running["stays"] = runs(work("stays", "c", preemptible=False), on("l", 1))
    world.running |= {f"r{name}": runs(work(f"r{name}", "b"), on(name, 1)) for name in "mn"}
    world.submit(work("gang", "a", 1, NOW, replicas=2, **asked))
    assert {place.node for place in world.step().reservations["gang"]} == {"m", "n"}
    world.nodes = (*nodes[:2], replace(nodes[2], **after))
    world.settle()
    assert "gang" in world.queue
    world.delete("stays")
    world.settle()
    assert {place.node for place in world.running["gang"].placements} == {"l", "m"}


def own_of_lower_priority_where_another_waits(*, gpus: int) -> World:
    """On `n` work of `a` and `b` within their fair shares, some that stays, and a place that is kept for `waits`."""
    projects = project("a", 0, weight=4), project("b", 0, weight=4), project("c", 0)
    world = World((node("n", 4),), projects, now=NOW)
    world.running["stays"] = runs(work("stays", "c", 2, preemptible=False), on("n", 0, 0, 1, 1))
    world.running["low"] = runs(work("low", "a", gpus, priority=10), on("n", *[1] * gpus), since=100)
    if gpus == 1:
        world.running["other"] = runs(work("other", "b", 1), on("n", 0, 1), since=50)
    world.submit(work("waits", "b", gpus, NOW - 1000), work("high", "a", gpus, NOW - 10, priority=90))
    return world


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_place_for_a_fair_share_saves_nobody_from_a_higher_priority_of_its_project(gpus: int) -> None:
    """Who waits for the place has no right to stop who runs there: it loses nothing that was free."""
    world = own_of_lower_priority_where_another_waits(gpus=gpus)
    assert set(world.step().reservations) >= {"waits"}
    world.settle()
    assert "high" in world.running
    assert [each.victim for decision in world.decisions for each in decision.reclaims] == ["low"]
    del world.queue["low"]
    world.delete("high")
    world.settle()
    assert "waits" in world.running, "what its project gives up is the place of who waits for it"


def test_those_who_wait_for_closed_nodes_take_nobody_else_s_turn() -> None:
    closed = node("c", GPUS, open=False, groups=("a",))
    owners = [project(f"p{at:02}", 1) for at in range(RESERVED_FOR)]
    world = World((node("n", 4), closed), (*owners, project("o", 4)), now=NOW)
    world.running["r"] = runs(work("r", "b", 1, preemptible=False), on("n", 1))
    world.submit(*(work(f"c{each.name}", each.name, 1, 0, groups=("a",), grouped_only=True) for each in owners))
    world.submit(work("large", "o", 4, NOW - 100))
    assert set(world.step().reservations) == {"large"}


STUCK = {"groups": ("red",), "grouped_only": True}
"""A workload that may go to the nodes of one group alone."""


def test_places_that_may_never_be_free_keep_nobody_from_places_whose_end_is_known() -> None:
    """More of the one node stands idle than may of the cluster, behind a session that may stay for ever."""
    owners = project("a", 9), project("b", 8), project("c", 1)
    world = World((node("red", 8, groups=("red",)), node("n", 8)), owners, now=NOW)
    world.running["stays"] = runs(work("stays", "a", preemptible=False), on("red", 1))
    ends = work("ends", "c", preemptible=False)
    world.running["ends"] = Running(ends, (on("n", 1),), 0, ends_at=(NOW + 9) * SECOND)
    world.submit(work("stuck", "a", 8, NOW - 1000, **STUCK), work("soon", "b", 8, NOW - 100))
    assert {id_: places[0].node for id_, places in world.step().reservations.items()} == {"stuck": "red", "soon": "n"}


def test_who_finds_places_that_may_never_be_free_used_up_has_others_whose_end_is_known() -> None:
    """Less is in the way on the one node, of a session that is within its quota; on the other it is known to end."""
    owners = project("a", 9), project("b", 8), project("c", 3)
    nodes = node("red", 8, groups=("red",)), node("n", 8), node("m", 8)
    world = World(nodes, owners, now=NOW)
    world.running["stays"] = runs(work("stays", "a", preemptible=False), on("red", 1))
    world.running["in quota"] = runs(work("in quota", "c"), on("n", 1))
    ends = work("ends", "c", 2, preemptible=False)
    world.running["ends"] = Running(ends, (on("m", 1, 1),), 0, ends_at=(NOW + 9) * SECOND)
    world.submit(work("stuck", "a", 8, NOW - 1000, **STUCK), work("soon", "b", 8, NOW - 100))
    assert [place.node for place in world.step().reservations["soon"]] == ["m"]


def test_places_that_may_never_be_free_are_not_the_only_ones_that_are_kept() -> None:
    """Nobody knows an end: 7 of 32 GPUs stand idle for one that is restricted to four nodes, and one for another."""
    red = tuple(node(f"red{at}", 2, groups=("red",)) for at in range(4))
    others = tuple(node(f"n{at:02}", 2) for at in range(12))
    world = World((*red, *others), (project("a", 9), project("b", 2), project("c", 12)), now=NOW)
    world.running["stays"] = runs(work("stays", "a", preemptible=False), on("red0", 1))
    for each in others:
        world.running[each.name] = runs(work(each.name, "c", preemptible=False), on(each.name, 1))
    world.submit(work("stuck", "a", 2, NOW - 1000, replicas=4, **STUCK), work("other", "b", 2, NOW - 100))
    assert set(world.step().reservations) == {"stuck", "other"}


def behind_what_may_stay() -> World:
    """A session that waits for 100 s for a node, of which 2 GPUs are in use for a time that nobody knows."""
    world = World((node("n", 4),), (project("a", 4), project("b", 4)), now=NOW)
    world.running["stays"] = runs(work("stays", "b", 2, preemptible=False), on("n", 1, 1))
    world.submit(work("large", "a", 4, NOW - 100))
    return world


@pytest.mark.parametrize(("limit_s", "goes"), [(0, False), (100, True), (101, False)])
def test_behind_what_may_stay_for_ever_goes_what_ends_within_the_time_that_was_waited(limit_s: int, goes: bool) -> None:
    world = behind_what_may_stay()
    world.submit(work("small", "b", 1, NOW, limit_s=limit_s))
    decision = world.step()
    assert ("small" in decision.placements) == goes
    assert "large" in decision.reservations


def test_nothing_goes_behind_what_can_be_reclaimed_in_time() -> None:
    """The guest may be stopped in an hour: who would be there then could not, and others would come after it."""
    world = behind_what_may_stay()
    world.settings = SchedulerSettings(min_runtime_s=3600)
    world.running = {"guest": runs(work("guest", "c", 2), on("n", 1, 1), since=NOW - 1)}
    world.submit(work("small", "b", 1, NOW, limit_s=100, preemptible=False))
    decision = world.step()
    assert set(decision.reservations) == {"large"}
    assert not decision.placements


def test_what_goes_behind_what_may_stay_for_ever_does_not_keep_coming_once_that_has_ended() -> None:
    world = behind_what_may_stay()
    world.submit(work("first", "b", 1, NOW, limit_s=100))
    assert "first" in world.step().placements
    world.delete("stays")
    world.step()
    world.submit(work("later", "b", 1, world.now, limit_s=100), work("sooner", "b", 1, world.now, limit_s=90))
    assert set(world.step().placements) == {"sooner"}


@pytest.mark.parametrize(
    ("owner", "gpus"),
    [
        pytest.param(project("a", 4), 0, id="within its quota"),
        pytest.param(project("a", 0), 0, id="within its fair share"),
        pytest.param(project("a", 4), 4, id="among its own"),
    ],
)
def test_one_who_waits_for_closed_nodes_does_not_take_the_turn_of_its_project(owner: ProjectState, gpus: int) -> None:
    nodes = *(node(name, 4) for name in ("m", "n", "o")[: 3 if gpus else 2]), node("c", 4, open=False, groups=("red",))
    world = World(nodes, (owner, project("b", 2)), SchedulerSettings(strict_order_after_s=50), now=NOW)
    world.running |= {name: runs(work(name, "b", 1, preemptible=False), on(name, 1)) for name in "mn"}
    if gpus:
        world.running["own"] = runs(work("own", "a", gpus), on("o", 1, 1, 1, 1))
    world.submit(work("mate", "a", 4, NOW - 1000, **STUCK), work("large", "a", 4, NOW - 100))
    assert set(world.step().reservations) == {"large"}


def test_who_is_queued_again_goes_behind_who_waited_meanwhile() -> None:
    """The time in which it ran is none in which it waited, also once both have waited for long."""
    settings = SchedulerSettings(reserve_after_s=10)
    world = World((node("n", 4),), (project("a", 4), project("b", 4)), settings)
    world.running["runs"] = replace(runs(work("runs", "b", 1, preemptible=False), on("n", 1)), ends_at=100 * SECOND)
    world.submit(work("large", "a", 4, 20, preemptible=False))
    world.submit(replace(work("again", "b", 1, 0, preemptible=False), requeued_at=30 * SECOND))
    world.now = 60
    world.step()
    assert world.decisions[-1].reservations.keys() == {"large"}
    assert "again" in world.queue
