"""Growth: elastic gangs get further containers on places that nobody who waits can use. Nobody is stopped for that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from api.scheduler.capacity import Flags
from api.scheduler.draft import Draft
from api.scheduler.elastic import missing_ranks, one_more, part_id, ranks_of, reachable
from api.scheduler.signature import Frontier
from api.scheduler.snapshot import Running

LOOKS_IN_VAIN = 64
"""After so many looks for a place that found none a decision looks for no more."""

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
    waiting = {item.workload.project for item in draft.waiting if not item.never}
    able = [each for each in growing if each.workload.project not in waiting and _may_grow(draft, each)]
    gangs = {each.workload.id: _Gang(each, missing_ranks(each), _nodes(draft, each)) for each in able}
    heap = [_key(draft, gang.running) for gang in gangs.values()]
    heapify(heap)
    full, in_vain = Frontier(least=True), 0
    while heap and in_vain < LOOKS_IN_VAIN:
        key = heappop(heap)
        gang = gangs[key[-1]]
        if (current := _key(draft, gang.running)) != key:
            heappush(heap, current)
            continue
        if not _grow(draft, gang, full):
            in_vain += 1
        elif gang.ranks:
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


def _grow(draft: Draft, gang: _Gang, full: Frontier) -> bool:
    """Give a gang its next container, where its project may have it and there is a place for it."""
    more = one_more(gang.running, gang.ranks[0])
    if more in full or not draft.ledger.may_hold(more):
        return False
    places = draft.cluster.find(more, gang.nodes)
    if places is None:
        if draft.cluster.find(more) is None:
            full.add(more)
        return False
    if not draft.may_take(more, places, draft.ledger.may_hold):
        return False
    draft.grow(gang.running, gang.ranks.pop(0), more, places)
    return True


def _key(draft: Draft, running: Running) -> Key:
    """Rank a gang: within the quota first, then by how little of their shares domain and project have, and had."""
    workload, ledger = one_more(running, 0), draft.ledger
    beyond, had = not ledger.in_quota(workload), ledger.had(workload.project)
    return beyond, *ledger.ratios(workload), had, -workload.priority, workload.submitted_at, running.workload.id
