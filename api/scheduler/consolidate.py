"""Consolidation: who moves elsewhere so that a workload fits which is entitled to room and waits otherwise.

Who is moved is stopped, goes back to the queue, and finds its new places kept for it: it loses what it did since its
last checkpoint, but not its turn. So it comes before reclaim, whose victims wait.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from api.scheduler import titles
from api.scheduler.draft import Draft, Places, Pool, Statement, Vain
from api.scheduler.snapshot import Running, Workload
from api.scheduler.victim_search import cheapest
from api.scheduler.victims import VictimPool

ATTEMPTS = 4
"""So many sets are tried, each without those of the one before that had nowhere to go."""
MOVING: Pool = ("move", False)


def consolidate(draft: Draft, workload: Workload, vain: Vain) -> Statement | None:
    """Propose to move the smallest set that makes room and itself fits elsewhere, and to nominate the workload."""
    may_move = _may_move(draft) if _is_entitled(draft, workload) and workload not in vain.pools[MOVING] else 0
    if not may_move or not draft.turns.may_search(workload):
        return None
    settings = draft.settings
    pool = VictimPool(
        everyone=True,
        movable=settings.moves_per_session,
        now=draft.now,
        least=draft.least,
        least_of=draft.least_of,
        taken=draft.terminating,
    )
    for _ in range(ATTEMPTS):
        victims = cheapest(draft.later, draft.residents, workload, pool, draft.turns.spend)
        if not victims or len(victims) > may_move:
            break
        places, moved = _elsewhere(draft, workload, victims)
        if places and len(moved) == len(victims):
            return Statement(workload, places, victims, titles.names(victims, workload.project), moved)
        pool = replace(pool, taken={*pool.taken, *(each.workload.id for each in victims)} - moved.keys())
    if workload.id not in draft.too_much:  # another project may have what is too much for its own
        vain.pools[MOVING].add(workload)
    return None


def _is_entitled(draft: Draft, workload: Workload) -> bool:
    ledger = draft.ledger
    if not draft.settings.consolidation or not workload.total_milli or not ledger.may_retain(workload):
        return False
    return ledger.in_quota(workload) or ledger.within_fair_share(workload)


def _may_move(draft: Draft) -> int:
    """Return how many may still be moved in this hour."""
    return max(0, draft.settings.moves_per_hour - draft.moved_lately - draft.moves)


def _elsewhere(draft: Draft, workload: Workload, victims: Collection[Running]) -> tuple[Places, dict[str, Places]]:
    """Return where the workload goes, and where those of the victims go that fit beside it, the largest first.

    None of these goes to a slice that counts for more than it has: its project might not have it there.
    """
    moved: dict[str, Places] = {}
    with draft.once_gone(victims):
        places = draft.suiting(workload, draft.ledger.may_retain, draft.later.find) or ()
        draft.later.allocate(places, workload)
        for running in sorted(victims, key=lambda each: (-each.workload.total_milli, each.workload.id)):
            may_have = partial(_takes_no_more, running.workload)
            found = draft.suiting(running.workload, may_have, draft.later.find)
            if found:
                draft.later.allocate(found, running.workload)
                moved[running.workload.id] = found
    return places, moved


def _takes_no_more(before: Workload, after: Workload) -> bool:
    return after.total_milli <= before.total_milli
