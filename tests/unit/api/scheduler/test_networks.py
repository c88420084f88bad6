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
TAKEN = "all 1 networks between containers of a session are taken; an administrator may give more room"


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
