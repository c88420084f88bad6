"""Reclaim: the smallest set of running workloads that has to go so that a waiting one fits.

Fewest milli-GPU first, then fewest workloads, then the lowest priority and the youngest. Exact where a search stays
within its limits (`region.STEPS`, and `LOOKS` nodes after the first on which there is a set), as small clusters do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from api.scheduler.capacity import Flags, Ints
from api.scheduler.cluster import ClusterState
from api.scheduler.region import NEVER, Region
from api.scheduler.residents import Residents
from api.scheduler.snapshot import Running, Workload
from api.scheduler.topology import allowed, node_sets
from api.scheduler.victims import Rank, VictimPool, rank
from common.gpu.share import MILLI
from common.topology import TopologyLevel

LOOKS = 32
"""So many more nodes are looked at, the most promising first, once there is a set."""
WINDOWS = (8, 32, 128, 512)
"""Nodes on which victims for a gang are looked for together: more only where fewer do not suffice."""


def cheapest(
    cluster: ClusterState, residents: Residents, workload: Workload, pool: VictimPool
) -> tuple[Running, ...] | None:
    """Return who has to go, or None where no set that the pool allows makes room."""
    if cluster.find(workload) is not None:
        region = Region.of(cluster, workload, (), _everywhere(residents, pool), pool)
        region.fits = True
        return region.search() if pool.due > 0 else None
    narrow = workload.within in (TopologyLevel.NODE, TopologyLevel.ISLAND)
    on_one = workload.replicas == 1 or (workload.within_required and narrow)
    return (_on_one if on_one else _on_several)(cluster, residents, workload, pool)


def _on_one(
    cluster: ClusterState, residents: Residents, workload: Workload, pool: VictimPool
) -> tuple[Running, ...] | None:
    """Look at one node after the other, the most promising first, until no other can be better."""
    rows = _rows(cluster, residents, pool, cluster.layout.open & allowed(cluster.layout, workload))
    bounds = least(cluster, workload, rows)
    held, any_there = residents.held(pool, cluster.layout)
    may_do = (bounds < NEVER) & any_there[rows] & (held[rows] >= bounds)
    best: tuple[Rank, tuple[Running, ...]] | None = None
    looks = 0
    elsewhere = list(_everywhere(residents, pool)) if pool.due > 0 else []
    for bound, row in sorted(zip(bounds[may_do].tolist(), rows[may_do].tolist(), strict=True)):
        if best and (bound > best[0][0] or looks >= LOOKS):
            break
        running = [each for each in residents.on(cluster.layout.nodes[row].name) if pool.has(each)]
        looks += 1 if best else 0
        found = Region.of(cluster, workload, (row,), [*running, *elsewhere], pool).search(best[0] if best else None)
        if found:
            best = rank(found), found
    return best[1] if best else None


def _on_several(
    cluster: ClusterState, residents: Residents, workload: Workload, pool: VictimPool
) -> tuple[Running, ...] | None:
    """Look at each set of nodes on which the gang may lie together."""
    best: tuple[Rank, tuple[Running, ...]] | None = None
    fitting = cluster.fitting(workload)
    elsewhere = list(_everywhere(residents, pool)) if pool.due > 0 else []
    held, any_there = residents.held(pool, cluster.layout)
    free = np.where(cluster.layout.usable_for(workload), np.maximum(cluster.state.milli, 0), 0).sum(axis=1)
    for domain in _domains(cluster, workload):
        if not any_there[domain].any():
            continue
        rows = _rows(cluster, residents, pool, domain)
        bounds = dict(zip(rows.tolist(), least(cluster, workload, rows, count=1).tolist(), strict=True))
        where_it_fits = np.flatnonzero(domain & (fitting > 0)).tolist()
        ordered = sorted({*bounds, *where_it_fits}, key=lambda row: (-int(fitting[row]), bounds.get(row, 0), row))
        for width in WINDOWS:
            window = ordered[:width]
            few = int((free[window] + held[window]).sum()) < workload.total_milli
            if few and width < len(ordered) and not cluster.layout.sliced:
                continue
            running = [each for row in window for each in residents.on(cluster.layout.nodes[row].name)]
            region = Region.of(cluster, workload, window, [*running, *elsewhere], pool)
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
        return np.full(len(rows), NEVER, dtype=np.int64)
    used = np.sort(np.where(usable, MILLI - free, NEVER), axis=1)
    clear = used[:, :needed].max(axis=1, initial=0) >= NEVER
    bound = np.where(clear, NEVER, used[:, :needed].sum(axis=1))
    total = count * workload.gpu_milli - np.where(usable, np.maximum(free, 0), 0).sum(axis=1)
    np.maximum(bound, total, out=bound)
    if fraction:
        np.maximum(bound, fraction - np.where(usable, free, 0).max(axis=1), out=bound)
        bound[~usable.any(axis=1)] = NEVER
    return np.minimum(bound, NEVER)


def _rows(cluster: ClusterState, residents: Residents, pool: VictimPool, within: Flags) -> Ints:
    known = cluster.layout.rows
    rows = [known[name] for name in residents.nodes_of(pool.projects) if name in known]
    chosen = np.array(sorted(rows), dtype=np.int64)
    return chosen[within[chosen]]


def _domains(cluster: ClusterState, workload: Workload) -> Iterator[Flags]:
    layout = cluster.layout
    for tier in node_sets(layout, workload):
        for nodes in tier:
            if workload.within_required and workload.within is TopologyLevel.SWITCH:
                codes: Sequence[int] = np.unique(layout.switch[nodes & (layout.switch >= 0)]).tolist()
                yield from (nodes & layout.open & (layout.switch == code) for code in codes)
            else:
                yield nodes & layout.open


def _everywhere(residents: Residents, pool: VictimPool) -> Iterable[Running]:
    """Return all candidates of the project itself, wherever they run."""
    found = {
        each.workload.id: each
        for node in residents.nodes_of([pool.own])
        for each in residents.on(node)
        if each.workload.project == pool.own and pool.has(each)
    }
    return found.values()
