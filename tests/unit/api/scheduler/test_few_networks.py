"""A site with few networks between containers: gangs that come later do not keep one waiting for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.scheduler.decide import decide
from api.scheduler.snapshot import Cause, Networks, SchedulerSettings, Snapshot, Workload
from common.topology import TopologyLevel
from tests.unit.api.scheduler.random_worlds import RandomWorld, numbers
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

SETTINGS = SchedulerSettings(reserve_after_s=5, strict_order_after_s=20)
TURNS = 100
OWNERS = "owner", "guest", "other"


def gang(id_: str, owner: str, gpus: float, at: int = 0, **more: object) -> Workload:
    return work(id_, owner, gpus, at, replicas=2, **more)


def live(world: World, owner: str, *, come: int = 2, **more: object) -> int:
    """Gangs without GPUs end and come, and sessions of one GPU, of which one ends each turn; when `gang` begins."""
    for turn in range(TURNS):
        world.submit(gang(f"s{turn:03}", "other", 0, world.now))
        world.submit(*(work(f"t{turn:03}-{each}", owner, 1, world.now, **more) for each in range(come)))
        world.step()
        if "gang" in world.running:
            return turn
        running = sorted((each.since, id_) for id_, each in world.running.items() if not each.terminating)
        for is_gang in (True, False):
            world.delete(*[id_ for _, id_ in running if world.running[id_].workload.needs_network is is_gang][:1])
    return TURNS


@pytest.mark.parametrize("networks", [1, 2])
@pytest.mark.parametrize("limit_s", [0, 7])
@pytest.mark.parametrize("preemptible", [True, False])
def test_a_guarantee_that_waits_too_long_gets_the_next_network(
    *, networks: int, limit_s: int, preemptible: bool
) -> None:
    """It waits for its own project's quota, which younger work of that takes as long as others take the networks."""
    world = World((node("n1", 2), node("n2", 2)), (project("owner", 4), project("other", 0)), SETTINGS)
    world.networks = networks
    for at, places in enumerate((on("n1", 1), on("n1", 0, 1), on("n2", 1), on("n2", 0, 1))):
        world.running[f"r{at}"] = runs(work(f"r{at}", "owner", 1, preemptible=preemptible), places)
    world.submit(gang("gang", "owner", 2, preemptible=preemptible))
    begun = live(world, "owner", preemptible=preemptible, limit_s=limit_s)
    assert begun < 2 * SETTINGS.strict_order_after_s, world.decisions[-1].pending_reasons["gang"]


def test_a_fair_share_that_waits_too_long_gets_the_next_network() -> None:
    """It may reclaim its places, and lost the network to one that was served before it whenever they became free."""
    world = World((node("n1", 2), node("n2", 2)), tuple(project(name, 0) for name in OWNERS), SETTINGS)
    world.networks = 1
    for name in ("n1", "n2"):
        world.running[name] = runs(work(name, "guest"), on(name, 1))
    world.submit(gang("gang", "owner", 1, within=TopologyLevel.NODE, within_required=True))
    begun = live(world, "guest", come=1)
    assert begun < 2 * SETTINGS.strict_order_after_s, world.decisions[-1].pending_reasons["gang"]


def waits_for(owner: str, quota: float, *, networks: int) -> Snapshot:
    """A gang that waits too long for places behind work of its own project that may stay for ever."""
    world = World(tuple(node(f"n{at}", 2) for at in range(4)), (project("owner", quota), project("other", 3)), SETTINGS)
    world.networks, world.now = networks, 1000
    for name in ("n1", "n2", "n3"):
        fixed = work(name, "other", preemptible=False)
        world.running[name] = runs(fixed, on(name, 1))
    world.submit(gang("gang", owner, 2))
    return world.snapshot()


@pytest.mark.parametrize("quota", [0, 4])
def test_one_network_is_reserved_for_one_gang_that_cannot_begin_yet(quota: float) -> None:
    snapshot = waits_for("owner", quota, networks=2)
    more = gang("more", "owner", 2, 1), gang("small", "other", 0, 999), gang("late", "other", 0, 1000)
    decision = decide(replace(snapshot, queue=(*snapshot.queue, *more)))
    assert set(decision.placements) == {"small"}
    assert {id_ for id_, each in decision.pending_reasons.items() if each.cause is Cause.NO_NETWORK} >= {"late"}


def test_a_guarantee_of_gpus_takes_a_network_that_is_reserved_for_a_fair_share() -> None:
    """The places of that are given up in the same decision, for whoever waits."""
    snapshot = waits_for("owner", 0, networks=1)
    assert "gang" in decide(snapshot).reservations
    younger = work("younger", "owner", 2, 1000)
    assert "younger" not in decide(replace(snapshot, queue=(*snapshot.queue, younger))).placements
    guarantee = gang("guarantee", "entitled", 0.5, 1000)
    projects = (*snapshot.projects, project("entitled", 1))
    asked = replace(snapshot, projects=projects, queue=(*snapshot.queue, younger, guarantee))
    enough = decide(replace(asked, networks=Networks(2, 2)))
    assert (set(enough.placements), set(enough.reservations)) == ({"guarantee"}, {"gang"})
    decision = decide(asked)
    assert set(decision.placements) == {"guarantee", "younger"}
    assert not decision.reservations


@pytest.mark.parametrize("part", range(10))
def test_worlds_with_few_networks(part: int) -> None:
    for number in numbers(part, 10, many=30, few=10):
        world = RandomWorld(number)
        world.networks = 1 + number % 2
        world.run()
