"""Many who ask for their own at once: a decision makes room for some, the next ones for the others, in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.scheduler.reclaim import RECLAIMED_FOR
from api.scheduler.reserve import RESERVED_FOR
from api.scheduler.snapshot import Cause
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

MANY = 3 * RECLAIMED_FOR


def crowd() -> World:
    """Every GPU of a project's quota is used by another, which has none, and all are asked for at once."""
    nodes = tuple(node(f"n{index:03}", 1) for index in range(MANY))
    world = World(nodes, (project("guest", 0), project("owner", MANY)))
    for index, each in enumerate(nodes):
        world.running[f"g{index:03}"] = runs(work(f"g{index:03}", "guest"), on(each.name, 1))
    world.submit(*(work(f"w{index:03}", "owner", at=index) for index in range(MANY)))
    world.now = MANY
    return world


def test_a_decision_searches_for_some_and_the_next_ones_for_the_others() -> None:
    world = crowd()
    served: list[str] = []
    for _ in range(3):
        decision = world.step()
        beneficiaries = [reclaim.beneficiary for reclaim in decision.reclaims]
        assert len(beneficiaries) == RECLAIMED_FOR
        served += beneficiaries
    assert served == [f"w{index:03}" for index in range(MANY)], "in the order of submission, nobody twice"
    world.settle()
    assert world.held()["owner"] == MANY * 1000
    assert sorted(world.queue) == [f"g{index:03}" for index in range(MANY)]


def test_who_is_served_next_is_told_what_is_so() -> None:
    waits = crowd().step().pending_reasons
    first, last = waits["w000"], waits[f"w{MANY - 1:03}"]
    assert (first.cause, first.position) == (Cause.RECLAIMING, 1)
    assert (last.cause, last.position) == (Cause.NO_ROOM, MANY)
    assert last.reason == "no node has 1 GPU free; every GPU in service that it may use is in use"


def test_what_finds_no_victims_uses_up_nobodys_turn() -> None:
    """Those who ask in vain come first, cycle for cycle; the others are served all the same."""
    world = crowd()
    pairs = tuple(work(f"a{index:03}", "owner", 2, at=0, replicas=1) for index in range(2 * RECLAIMED_FOR))
    world.nodes = (*world.nodes, node("pair", 2))
    world.projects = (*world.projects, project("fixed", 2))
    world.running["f"] = runs(work("f", "fixed", 2, preemptible=False), on("pair", 1, 1))
    world.submit(*pairs)
    assert {reclaim.beneficiary[0] for reclaim in world.step().reclaims} == {"w"}


def test_places_are_reserved_for_the_first_of_many_projects_whose_work_waits_long() -> None:
    world = crowd()
    owners = [f"owner{index:03}" for index in range(MANY)]
    world.projects = (project("guest", 0), *(project(name, 1) for name in owners))
    world.queue = {
        id_: replace(each, project=owner) for owner, (id_, each) in zip(owners, world.queue.items(), strict=True)
    }
    world.now = 10_000
    for name, running in world.running.items():
        world.running[name] = replace(running, workload=replace(running.workload, preemptible=False))
    waits = world.step().pending_reasons
    reserved = [name for name, wait in waits.items() if "is kept for it until it is free" in wait.reason]
    assert reserved == [f"w{index:03}" for index in range(RESERVED_FOR)]


@pytest.mark.parametrize("waited", [0, 100])
def test_a_gang_finds_its_places_among_a_thousand_quarters_of_gpus(waited: int) -> None:
    nodes = tuple(node(f"n{at:02}") for at in range(32))
    world = World(nodes, (project("guest", 0), project("owner", 72)), now=1000)
    for each in nodes:
        for quarter in range(32):
            places = [0.0] * (quarter // 4) + [0.25]
            world.running[f"{each.name}-{quarter}"] = runs(
                work(f"{each.name}-{quarter}", "guest", 0.25), on(each.name, *places)
            )
    world.submit(work("gang", "owner", 8, at=1000 - waited, replicas=9))
    assert len(world.step().reclaims) == 9 * 32
