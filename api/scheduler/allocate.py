"""Allocation: places that are free for a workload, now or once those that are terminating are gone."""

from __future__ import annotations

from api.scheduler import titles
from api.scheduler.claims import NEVER, SECOND, Claim, Standing
from api.scheduler.draft import Draft, Places, Statement, Vain
from api.scheduler.signature import Frontier
from api.scheduler.snapshot import Workload


def now(draft: Draft, workload: Workload, vain: Vain) -> Statement | None:
    """Propose to start a workload on free places."""
    if not draft.ledger.may_hold(workload) or draft.lacks_network(workload):
        return None
    places = draft.find(draft.cluster, workload, vain.now, draft.ledger.may_hold) or _before_others(draft, workload)
    return Statement(workload, places) if places else None


def later(draft: Draft, workload: Workload, vain: Vain) -> Statement | None:
    """Propose to nominate a workload for places that are being freed anyway."""
    if not draft.terminating or not draft.ledger.may_retain(workload):
        return None
    if workload in vain.now and not draft.is_being_freed(workload):
        return None  # there will be no more than there is now
    places = draft.find(draft.later, workload, vain.later, draft.ledger.may_retain)
    if places is None:
        return None
    terminating = titles.blockers(draft.terminating.values(), places, workload.project)
    return Statement(workload, places, terminating=terminating)


def kept(draft: Draft, claim: Claim) -> Statement | None:
    """Propose to start a workload on the places that it is nominated for, or to go on keeping them.

    Places that are reserved for others may lie over them, on the same running work: it was nominated first.
    """
    workload, places, taken = claim.workload, claim.places, claim.taking
    others = [other for other in draft.claims.with_places() if other.standing is not Standing.NOMINATED]
    with draft.without([claim, *others]):
        if draft.ledger.may_hold(taken) and draft.cluster.has_free(places, workload):
            return Statement(workload, places)
        if not draft.ledger.may_retain(taken) or not draft.later.has_free(places, workload):
            return None
    terminating = titles.blockers(draft.terminating.values(), places, workload.project)
    return Statement(workload, places, terminating=terminating)


def _before_others(draft: Draft, workload: Workload) -> Places | None:
    """Find places that are kept for later: a workload that ends before delays nobody, or nobody for long."""
    if not workload.limit_s:
        return None
    ends_at = draft.now + workload.limit_s * SECOND
    kept = [claim for claim in draft.claims.with_places() if ends_at <= _left_until(draft, claim)]
    if not kept:
        return None
    with draft.without(kept):
        return draft.find(draft.cluster, workload, Frontier(least=True), draft.ledger.may_hold)


def _left_until(draft: Draft, claim: Claim) -> int:
    """Return until when others may be on places that are kept: until they are free, as far as that is known.

    Behind who can neither be reclaimed nor is known to end, for as long as the workload has waited: if that one ends at
    once, it waits twice as long at most.
    """
    if claim.free_at < NEVER:
        return claim.free_at
    return 2 * draft.now - claim.workload.waiting_since if claim.stays else 0
