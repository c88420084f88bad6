"""Networks between containers of a session: who gets those that are free, and that nobody is stopped without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.scheduler.decide import decide
from api.scheduler.snapshot import Cause, Networks, Running, SchedulerSettings, Snapshot, Workload
from tests.unit.api.scheduler.world import SECOND, node, on, project, runs, work

NOW = 1000
NODES = (node("n1", 4), node("n2", 4))
PROJECTS = (project("owner", 8), project("guest", 0))
TAKEN = "the network between containers of a session is taken or kept for others; an administrator may give more room"


def gang(id_: str, gpus: float = 2, owner: str = "owner", at: int = NOW, **more: object) -> Workload:
    return replace(work(id_, owner, gpus, at), replicas=2, **more)  # type: ignore[arg-type]


def seen(running: tuple[Running, ...], *queue: Workload, free: int, **more: object) -> Snapshot:
    networks = Networks(1, free)
    return Snapshot(NOW * SECOND, NODES, PROJECTS, running, queue, networks=networks, **more)  # type: ignore[arg-type]


def guests(count: int) -> tuple[Running, ...]:
    """Sessions of one GPU beyond any quota, on the first node and then on the second."""
    places = [(each.name, at) for each in NODES for at in range(4)]
    return tuple(runs(work(f"g{n}", "guest"), on(name, *[0] * at, 1)) for n, (name, at) in enumerate(places[:count]))


@pytest.mark.parametrize("at", [NOW, 0])
@pytest.mark.parametrize("settings", [SchedulerSettings(), SchedulerSettings(consolidation=True)])
def test_nobody_is_stopped_and_nothing_reserved_for_a_gang_without_a_network(
    at: int, settings: SchedulerSettings
) -> None:
    decision = decide(seen(guests(6), gang("gang", at=at), free=0, settings=settings))
    assert not decision.reclaims
    assert not decision.reservations
    waits = decision.pending_reasons["gang"]
    assert (waits.cause, waits.reason) == (Cause.NO_NETWORK, TAKEN)


def test_what_needs_none_starts_and_reclaims_behind_it() -> None:
    waiting = gang("gang", at=0)
    assert "small" in decide(seen(guests(6), waiting, work("small", "guest", 1, NOW), free=0)).placements
    decision = decide(seen(guests(6), waiting, work("large", "owner", 4, NOW), free=0))
    assert {each.beneficiary for each in decision.reclaims} == {"large"}


def test_the_only_free_network_is_for_the_gang_that_is_served_first() -> None:
    """That is the guarantee, whichever was submitted first or stands first in the queue."""
    other = gang("first", 1, "guest", at=0)
    decision = decide(seen((), other, gang("second", 1), free=1))
    assert set(decision.placements) == {"second"}
    assert decision.pending_reasons["first"].cause is Cause.NO_NETWORK


def test_one_that_is_nominated_keeps_its_network() -> None:
    """The other one has free places now, and would leave it none when its own are free."""
    first = decide(seen(guests(6), gang("first"), free=1))
    assert first.reclaims
    gone = {each.victim for each in first.reclaims}
    running = tuple(replace(each, terminating=each.workload.id in gone) for each in guests(6))
    queue = gang("first"), gang("second", 1, at=0)
    second = decide(
        seen(running, *queue, free=1, reservations=first.reservations, nominated=first.nominated),
    )
    assert "first" in second.reservations
    assert second.pending_reasons["second"].cause is Cause.NO_NETWORK
    without = decide(seen(running, *queue, free=0, reservations=first.reservations, nominated=first.nominated))
    assert not without.reservations


def test_an_elastic_gang_of_one_container_needs_one_too() -> None:
    elastic = replace(work("gang", "owner", 1, NOW), min_replicas=1, max_replicas=2)
    assert decide(seen((), elastic, free=0)).pending_reasons["gang"].cause is Cause.NO_NETWORK
    assert decide(seen((), elastic, free=1)).placements
    assert decide(replace(seen((), elastic, gang("other", 1), free=0), networks=None)).placements.keys() == {
        "gang",
        "other",
    }


def test_a_gang_that_is_moved_takes_no_network_from_the_one_that_it_is_moved_for() -> None:
    """It has one until it is gone, and that is free again when it comes back."""
    nodes = (*NODES, node("n3", 4))
    moved = replace(runs(gang("moved", 1, at=0), on("n1", 1)), placements=(on("n1", 1), on("n2", 1)))
    alone = runs(replace(work("alone", "owner", 2, 0), preemptible=False), on("n3", 1, 1))
    first = Snapshot(
        *(NOW * SECOND, nodes, (project("owner", 4), project("guest", 8)), (moved, alone)),
        (gang("gang", 4, "guest", NOW - 10),),
        settings=SchedulerSettings(consolidation=True),
        networks=Networks(2, 1),
    )
    decision = decide(first)
    assert [(each.victim, each.moved) for each in decision.reclaims] == [("moved", True)]
    later = replace(
        first,
        running=(replace(moved, terminating=True), alone),
        queue=(*first.queue, work("late", "owner", 2, NOW)),
        reservations=decision.reservations,
        nominated=decision.nominated,
    )
    assert "gang" in decide(later).nominated
    assert not decide(later).placements


def test_a_gang_that_waits_for_what_nobody_knows_the_end_of_takes_no_network() -> None:
    nodes = (*NODES, node("n3", 2))
    fixed = tuple(
        runs(replace(work(f"f{name}", "guest", 4, 0), preemptible=False), on(name, 1, 1, 1, 1)) for name in ("n1", "n2")
    )
    waits = gang("waits", 4, at=0)
    snapshot = Snapshot(
        *(NOW * SECOND, nodes, (project("owner", 8), project("guest", 10)), fixed, (waits, gang("small", 1, "guest"))),
        networks=Networks(2, 1),
    )
    decision = decide(snapshot)
    assert set(decision.placements) == {"small"}
