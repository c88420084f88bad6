"""Growth: elastic gangs get further containers on places that nobody who waits can use. Nobody is stopped for that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from api.scheduler.capacity import Flags
from api.scheduler.draft import Draft
from api.scheduler.elastic import missing_ranks, one_more, part_id, ranks_of, reachable
from api.scheduler.signature import Signature, signature_of
from api.scheduler.snapshot import Running

Key = tuple[bool, int, int, int, int, int, str]


@dataclass
class _Gang:
    """A gang that may grow: the ranks that it may yet have, the lowest first, and the nodes near the others."""

    running: Running
    ranks: list[int]
    nodes: Flags


def grow(draft: Draft, growing: Iterable[Running]) -> None:
    """Give gangs one container after the other, each time that of the project which is furthest below its share.

    A gang of a project of which other work waits gets none: that goes first.
    """
    waiting = {item.workload.project for item in draft.waiting if item.is_able}
    able = [each for each in growing if each.workload.project not in waiting and _may_grow(draft, each)]
    gangs = {each.workload.id: _Gang(each, missing_ranks(each), _nodes(draft, each)) for each in able}
    heap = [_key(draft, gang.running) for gang in gangs.values()]
    heapify(heap)
    room: dict[Signature, Flags] = {}
    while heap:
        key = heappop(heap)
        gang = gangs[key[-1]]
        if (current := _key(draft, gang.running)) != key:
            heappush(heap, current)
            continue
        if _grow(draft, gang, room):
            room.clear()
            if gang.ranks:
                heappush(heap, _key(draft, gang.running))


def _nodes(draft: Draft, running: Running) -> Flags:
    """Return the nodes on which a further container meets the others."""
    layout = draft.cluster.layout
    found = reachable(layout, running.workload, running.placements)
    if running.reach:
        rows = [row for name in running.reach if (row := layout.rows.get(name)) is not None]
        known = np.zeros_like(found)
        known[rows] = True
        found = found & known
    return found


def _may_grow(draft: Draft, running: Running) -> bool:
    if not 0 < running.grows_at <= draft.now or running.leaving or not missing_ranks(running):
        return False
    id_ = running.workload.id
    return draft.terminating.keys().isdisjoint([id_, *(part_id(id_, rank) for rank in ranks_of(running))])


def _grow(draft: Draft, gang: _Gang, room: dict[Signature, Flags]) -> bool:
    """Give a gang its next container, where its project may have it and there is a place for it.

    `room` says by signature which nodes have any: many gangs may ask, and none is to hide another one.
    """
    more = one_more(gang.running, gang.ranks[0])
    if not draft.ledger.may_hold(more):
        return False
    signature = signature_of(more)
    if signature not in room:
        room[signature] = draft.cluster.fitting(more) > 0
    places = draft.cluster.find(more, gang.nodes) if (room[signature] & gang.nodes).any() else None
    if places is None or not draft.may_take(more, places, draft.ledger.may_hold):
        return False
    draft.grow(gang.running, gang.ranks.pop(0), more, places)
    return True


def _key(draft: Draft, running: Running) -> Key:
    """Rank a gang: within the quota first, then by how little of their shares domain and project have, and had."""
    workload, ledger = one_more(running, 0), draft.ledger
    beyond, had = not ledger.in_quota(workload), ledger.had(workload.project)
    return beyond, *ledger.ratios(workload), had, -workload.priority, workload.submitted_at, running.workload.id
