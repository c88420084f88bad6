"""Reservations: the places that a large workload gets soonest, as far as that can be told."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from api.scheduler.cluster import ClusterState
from api.scheduler.reclaim import cheapest
from api.scheduler.residents import Residents
from api.scheduler.snapshot import Placement, Running, Workload
from api.scheduler.victims import VictimPool

NEVER = 1 << 62


@dataclass(frozen=True)
class Reservation:
    """Places that nobody else gets who would still be there at `free_at`; NEVER where nobody knows when that is."""

    workload: Workload
    places: tuple[Placement, ...]
    free_at: int = 0


def reserve(
    cluster: ClusterState,
    residents: Residents,
    workload: Workload,
    taken: Collection[str],
    before: tuple[Placement, ...] = (),
) -> Reservation | None:
    """Return a reservation where the fewest milli-GPU of others are in the way; None where there is no such place.

    It stays where it was `before`. Those that cannot be reclaimed and whose end nobody knows may stay for long, so
    places that they do not stand on go first. `taken` are terminating anyway.
    """
    if before:
        stays = _again(cluster, residents, workload, before)
        if stays:
            return stays
    free_now = cluster.find(workload)
    if free_now is not None:
        return Reservation(workload, free_now)
    for soon_only in (True, False):
        pool = VictimPool(everyone=True, soon_only=soon_only, taken=taken)
        in_the_way = cheapest(cluster, residents, workload, pool)
        if in_the_way:
            with cluster.trial():
                for running in in_the_way:
                    cluster.release(running.placements, running.workload)
                places = cluster.find(workload)
            return Reservation(workload, places, _last_end(in_the_way)) if places else None
    return None


def _again(
    cluster: ClusterState, residents: Residents, workload: Workload, places: tuple[Placement, ...]
) -> Reservation | None:
    """Return the same reservation once more; None where more is in its way than those who run there."""
    on = {each.workload.id: each for node in {place.node for place in places} for each in residents.on(node)}
    wanted = {(place.node, share.uuid) for place in places for share in place.shares}
    in_the_way = [
        each
        for each in on.values()
        if not wanted or any((place.node, share.uuid) in wanted for place in each.placements for share in place.shares)
    ]
    with cluster.trial():
        for running in in_the_way:
            cluster.release(running.placements, running.workload)
        return Reservation(workload, places, _last_end(in_the_way)) if cluster.has_free(places, workload) else None


def _last_end(running: Iterable[Running]) -> int:
    return max((each.ends_at or NEVER for each in running), default=0)
