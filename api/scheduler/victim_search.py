"""Victim search: a small set of running workloads that has to go so that a waiting one fits.

Fewest milli-GPU first, then fewest workloads, then the lowest priority and the youngest. Exact where few may go on a
node (`region.FEW`), as in small clusters; `LOOKS` bounds the nodes after the first on which there is a set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from api.scheduler.capacity import Flags, Ints
from api.scheduler.cluster import ClusterState
from api.scheduler.region import NOWHERE, Region
from api.scheduler.residents import Candidates, Residents
from api.scheduler.snapshot import Resource, Running, Workload
from api.scheduler.topology import allowed, node_sets
from api.scheduler.victims import Rank, Taken, VictimPool, rank
from common.gpu.share import MILLI
from common.topology import TopologyLevel

LOOKS = 8
"""So many more nodes are looked at, the most promising first, once there is a set."""
LARGE = 256
"""A look at so many candidates counts for two, at twice as many for three: a session for which thousands of its own
project would have to go would else be looked for as long as hundreds of others."""
EXACT_LOOKS = 2
"""On so many of these all sets are looked at; on the others one that spares whom it can."""
EXACT_NODES = 64
"""On more nodes with candidates no exact search is made for places that become free soonest."""
WINDOWS = (8, 32, 128, 512)
"""Nodes on which victims for a gang are looked for together: more only where fewer do not suffice."""

Found = tuple[Running, ...] | None
Spend = Callable[[int], None]
"""Takes notice of steps, which stand for about as much time each."""
SEARCH, REGION, OF_LARGE = 100, 10, 3
"""Steps of a search, and of each look at a few nodes; every candidate there is one more, and of a large look three."""


def cheapest(
    cluster: ClusterState,
    residents: Residents,
    workload: Workload,
    pool: VictimPool,
    spend: Spend = lambda _: None,
) -> Found:
    """Return who has to go, or None where no set that the pool allows makes room."""
    spend(SEARCH)
    candidates = residents.candidates(pool, cluster.layout)
    if pool.owes and not _pays(candidates, pool):
        return None
    if cluster.find(workload) is not None:
        return Region.of(cluster, workload, (), candidates.own, pool).search(fits=True) if pool.owes else None
    narrow = workload.within in (TopologyLevel.NODE, TopologyLevel.ISLAND)
    on_one = workload.replicas == 1 or (workload.within_required and narrow)
    return (_on_one if on_one else _on_several)(cluster, candidates, workload, pool, spend)


def _steps(region: Region) -> int:
    return REGION + region.candidates * (1 if region.candidates < LARGE else OF_LARGE)


def _pays(candidates: Candidates, pool: VictimPool) -> bool:
    """Return whether all who owe something come to what is due: else no node has to be looked at."""
    taken = Taken(pool)
    for each in candidates.own:
        taken.add(each.workload)
    return not taken.is_owed()


def _on_one(cluster: ClusterState, candidates: Candidates, workload: Workload, pool: VictimPool, spend: Spend) -> Found:
    """Look at one node after the other, the most promising first, until no other can be better."""
    rows = np.flatnonzero(candidates.there & cluster.layout.takes(workload) & allowed(cluster.layout, workload))
    bounds = least(cluster, workload, rows)
    may_do = (bounds < NOWHERE) & (candidates.held[rows] >= bounds)
    if not workload.gpu_milli:
        for resource, free in ((Resource.CPU, cluster.state.cpu), (Resource.MEMORY, cluster.state.memory)):
            if workload.amount(resource):
                may_do &= (free + candidates.beside(resource))[rows] >= workload.amount(resource)
    best: tuple[Rank, tuple[Running, ...]] | None = None
    # which places become free soonest is a guess anyway
    looks, exact = 0, -1 if pool.everyone and pool.movable is None and len(rows) > EXACT_NODES else EXACT_LOOKS
    found_bounds, found_rows = bounds[may_do], rows[may_do]
    for at in np.lexsort((found_rows, found_bounds)):
        bound, row = int(found_bounds[at]), int(found_rows[at])
        if best and (bound > best[0][0] or looks >= LOOKS):
            break
        region = Region.of(cluster, workload, (row,), [*candidates.on(row), *candidates.own], pool)
        spend(_steps(region))
        looks += 1 + region.candidates // LARGE if best else 0
        found = region.search(best[0] if best else None, exact=looks <= exact)
        if found:
            best = rank(found), found
    return best[1] if best else None


def _on_several(
    cluster: ClusterState, candidates: Candidates, workload: Workload, pool: VictimPool, spend: Spend
) -> Found:
    """Look at each set of nodes on which the gang may lie together."""
    best: tuple[Rank, tuple[Running, ...]] | None = None
    fitting = cluster.fitting(workload)
    free = np.where(cluster.layout.usable_for(workload), np.maximum(cluster.state.milli, 0), 0).sum(axis=1)
    for domain in _domains(cluster, workload):
        rows = np.flatnonzero(domain & candidates.there)
        if not len(rows):
            continue
        bounds = dict(zip(rows.tolist(), least(cluster, workload, rows, count=1).tolist(), strict=True))
        where_it_fits = np.flatnonzero(domain & (fitting > 0)).tolist()
        ordered = sorted({*bounds, *where_it_fits}, key=lambda row: (-int(fitting[row]), bounds.get(row, 0), row))
        for width in WINDOWS:
            window = ordered[:width]
            few = int((free[window] + candidates.held[window]).sum()) < workload.total_milli
            if few and width < len(ordered) and not cluster.layout.sliced:
                continue
            there = [each for row in window for each in candidates.on(row)]
            region = Region.of(cluster, workload, window, [*there, *candidates.own], pool)
            spend(_steps(region))
            found = region.search(best[0] if best else None)
            if found:
                best = rank(found), found
            if found or width >= len(ordered):
                break
    return best[1] if best else None


def least(cluster: ClusterState, workload: Workload, rows: Ints, count: int | None = None) -> Ints:
    """Return for each row how many milli-GPU have to go there at least; never too many."""
    count = workload.replicas if count is None else count
    whole, fraction = divmod(workload.gpu_milli, MILLI)
    if not workload.gpu_milli:
        return np.zeros(len(rows), dtype=np.int64)
    usable = cluster.layout.usable_for(workload)[rows]
    free = cluster.state.milli[rows]
    needed = whole * count
    if needed + bool(fraction) > free.shape[1]:
        return np.full(len(rows), NOWHERE, dtype=np.int64)
    bound = np.zeros(len(rows), dtype=np.int64)
    if needed:
        used = np.partition(np.where(usable, MILLI - free, NOWHERE), needed - 1, axis=1)[:, :needed]
        bound = np.where(used.max(axis=1) >= NOWHERE, NOWHERE, used.sum(axis=1))
    total = count * workload.gpu_milli - np.where(usable, np.maximum(free, 0), 0).sum(axis=1)
    np.maximum(bound, total, out=bound)
    if fraction:
        np.maximum(bound, fraction - np.where(usable, free, 0).max(axis=1), out=bound)
        bound[~usable.any(axis=1)] = NOWHERE
    return np.minimum(bound, NOWHERE)


def _domains(cluster: ClusterState, workload: Workload) -> Iterator[Flags]:
    """Yield each set of open nodes of which a gang takes one; who has to lie below one switch may lie on one node."""
    layout, takes = cluster.layout, cluster.layout.takes(workload)
    for tier in node_sets(layout, workload):
        for nodes in tier:
            if workload.within_required and workload.within is TopologyLevel.SWITCH:
                codes: Sequence[int] = np.unique(layout.switch[nodes & (layout.switch >= 0)]).tolist()
                yield from (nodes & takes & (layout.switch == code) for code in codes)
                alone = np.flatnonzero(nodes & takes & (layout.switch < 0))
                yield from (np.arange(len(layout.nodes)) == row for row in alone)
            else:
                yield nodes & takes
