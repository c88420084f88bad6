"""Reservations: the places that a large workload gets soonest, as far as that can be told without run times."""

from __future__ import annotations

from collections.abc import Collection

from api.scheduler.cluster import ClusterState
from api.scheduler.reclaim import cheapest
from api.scheduler.residents import Residents
from api.scheduler.snapshot import Placement, Workload
from api.scheduler.victims import VictimPool


def places(
    cluster: ClusterState, residents: Residents, workload: Workload, taken: Collection[str]
) -> tuple[Placement, ...] | None:
    """Return where the workload would go with the fewest milli-GPU of others in its way; None where it never could.

    Those that cannot be reclaimed may stay for long, so places that they do not stand on go first. `taken` are
    terminating anyway. While nobody else gets the places, what stands in the way only becomes less, so the choice
    settles.
    """
    free_now = cluster.find(workload)
    if free_now is not None:
        return free_now
    for preemptible_only in (True, False):
        pool = VictimPool(everyone=True, preemptible_only=preemptible_only, taken=taken)
        in_the_way = cheapest(cluster, residents, workload, pool)
        if in_the_way:
            with cluster.trial():
                for running in in_the_way:
                    cluster.release(running.placements, running.workload)
                return cluster.find(workload)
    return None
