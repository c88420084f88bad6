"""Elastic gangs: sessions whose number of containers changes while they run, and the parts that they consist of.

The first containers, so many as the gang starts with, are its core and stay together. Each further one is a part of
its own: it may be given up alone, and the core goes only with all of them. Parts are workloads of one container whose
`Running.part_of` names the gang; their ids are made here and are nobody's outside of the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from api.scheduler.capacity import Flags, Ints, Layout
from api.scheduler.snapshot import Placement, Running, Workload, taking
from api.scheduler.topology import node_sets

STAYS = 1 << 30
"""So often no workload is moved: what has more moves than that, or as many, never is."""
REACH = 32
"""So many nodes beside its first ones a gang may grow to."""


def parts(running: Running) -> tuple[Running, ...]:
    """Return what may be given up apart: the core, then each further container; most workloads are one part."""
    workload = running.workload
    if running.terminating or not workload.is_elastic:
        return (running,)
    least, ranks = workload.min_replicas, ranks_of(running)
    if ranks[-1:] < (least,):
        return (running,)
    of_core = tuple(place for rank, place in zip(ranks, running.placements, strict=True) if rank < least)
    further = [(rank, place) for rank, place in zip(ranks, running.placements, strict=True) if rank >= least]
    asked = replace(workload, replicas=1, held_milli=0, min_replicas=0, max_replicas=0, moves=STAYS, moved_at=0)
    extras = [
        replace(
            running,
            workload=taking(replace(asked, id=part_id(workload.id, rank)), [place]),
            placements=(place,),
            ranks=(rank,),
            leaving=(),
            terminating=rank in running.leaving,
            part_of=workload.id,
        )
        for rank, place in further
    ]
    core = taking(replace(workload, replicas=len(of_core), held_milli=0, moves=STAYS), of_core)
    staying = tuple(each.workload.id for each in extras if not each.terminating)
    return replace(running, workload=core, placements=of_core, ranks=(), leaving=(), extras=staying), *extras


def part_id(session: str, rank: int) -> str:
    """Return the id of the part that is one further container of a session."""
    return f"{session}/{rank}"


def ranks_of(running: Running) -> tuple[int, ...]:
    """Return the ranks of its containers, in the order of their places."""
    return running.ranks or tuple(range(len(running.placements)))


def missing_ranks(running: Running) -> list[int]:
    """Return the ranks that a gang may yet have, the lowest first."""
    taken = set(ranks_of(running))
    return [rank for rank in range(running.workload.max_replicas) if rank not in taken]


def one_more(running: Running, rank: int) -> Workload:
    """Return one further container of a gang as a workload."""
    workload = running.workload
    return replace(
        workload, id=part_id(workload.id, rank), replicas=1, held_milli=0, min_replicas=0, max_replicas=0, moves=STAYS
    )


def reach(layout: Layout, free: Ints, workload: Workload, places: Sequence[Placement]) -> tuple[str, ...]:
    """Return the nodes that a gang which starts on these places may grow to: its own, and those with the most free.

    `free` is the milli-GPU of each node. Below the leaf switch of the first container they go before others. All
    containers know these nodes from the beginning, so they are not too many.
    """
    own = list(dict.fromkeys(place.node for place in places))
    near = reachable(layout, workload, places) & layout.takes(workload)
    rows = np.flatnonzero(near)
    switch = layout.switch[layout.rows[own[0]]] if own and own[0] in layout.rows else -1
    is_far = (layout.switch[rows] != switch) | (switch < 0)
    ordered = rows[np.lexsort((rows, -free[rows], is_far))][:REACH]
    return (*own, *(name for row in ordered if (name := layout.nodes[row].name) not in own))


def reachable(layout: Layout, workload: Workload, places: Sequence[Placement]) -> Flags:
    """Return the nodes on which one further container of a gang meets the others, which have these places.

    All lie in one resource group; where GPUs are apart several containers of a session never meet.
    """
    nothing = np.zeros(len(layout.nodes), dtype=np.bool_)
    rows = [layout.rows.get(place.node) for place in places]
    known = [row for row in rows if row is not None]
    if len(known) < len(rows) or layout.apart[known].any():
        return nothing
    found = nothing
    for tier in node_sets(layout, workload):
        for nodes in tier:
            if nodes[known].all():
                found = found | nodes
    return found & ~layout.apart
