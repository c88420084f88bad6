"""Reservation: the places that a workload which waits long gets soonest, as far as that can be told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import gcd

from api.scheduler.claims import NEVER, Claim, Standing
from api.scheduler.draft import Draft, Places
from api.scheduler.signature import Frontier
from api.scheduler.snapshot import Running, Workload
from api.scheduler.victim_search import cheapest
from api.scheduler.victims import VictimPool

Found = tuple[Places, Sequence[Running]]
"""Places, and who is in the way there."""
RESERVED_FOR = 16
"""For so many projects, those whose first workload waits longest, places are found in one decision: others wait behind;
and for as many again for their fair shares. Whom all that runs could leave, and still none would do, is not counted."""
RESERVED_PART = 8
"""No more than this part of the GPUs stands idle for guarantees that wait long, and as much for fair shares: where it
is known when the places are free, and as much where it is not. One reservation of each kind is made in any case."""


class Reserve:
    """Reservations of one decision with one standing: one for each project, for few projects, little of the cluster."""

    def __init__(self, draft: Draft, standing: Standing) -> None:
        self._draft, self._standing = draft, standing
        self._asked: set[str] = set()
        self._found: set[str] = set()
        self._vain = Frontier(least=True)

    def may_ask(self, workload: Workload) -> bool:
        """Return whether it would be the first of its project."""
        return workload.project not in self._asked

    def places(self, workload: Workload, before: Places, *, among_own: bool = False) -> Claim | None:
        """Propose to keep places for the workload, unless too much of the cluster would stand idle.

        `before` is where they were kept in the decision before. With `among_own` nobody may be in the way who has a
        better right to be there than its own project.
        """
        is_one_more = workload.project not in self._found and len(self._found) >= RESERVED_FOR
        known, unknown = (self._idle(is_known=each) < max(1, self._may_be_idle) for each in (True, False))
        if is_one_more or not (known or unknown) or not self._draft.could_have(workload):
            return None
        self._asked.add(workload.project)
        if workload in self._vain:
            return None
        look = soonest_among_own if among_own else soonest
        if unknown:
            found = look(self._draft, workload, before)
            if found is None and not among_own:
                self._vain.add(workload)
            claim = self._claim(workload, found)
            if claim or found is None or _last_end(found[1]) < NEVER:
                return claim
        self._found.add(workload.project)
        return self._claim(workload, look(self._draft, workload, before, ends_only=True)) if known else None

    def _claim(self, workload: Workload, found: Found | None) -> Claim | None:
        """Return the claim on places that were found, unless too much would stand idle."""
        if found is None:
            return None
        self._found.add(workload.project)
        places, in_the_way = found
        free_at, more = _last_end(in_the_way), self._draft.cluster.free_of(places)
        idle = self._idle(is_known=free_at < NEVER)
        if idle and idle + more > self._may_be_idle:
            return None
        stays = any(not (each.ends_at or each.workload.preemptible) for each in in_the_way)
        return Claim(workload, self._standing, places, free_at, more, stays=stays)

    @property
    def _may_be_idle(self) -> int:
        return self._draft.capacity // RESERVED_PART

    def _idle(self, *, is_known: bool) -> int:
        """Return what stands idle for those whose places are free at a time that is known, or for the others.

        The latter may never be: one claim counts for half of what may stand idle at most, so that it is not the only
        one for ever.
        """
        own = [claim for claim in self._draft.claims if claim.standing is self._standing]
        idle = [claim.idle for claim in own if (claim.free_at < NEVER) is is_known]
        return sum(idle) if is_known else sum(min(each, self._may_be_idle // 2) for each in idle)


def quota_alone(draft: Draft, workload: Workload) -> Claim | None:
    """Propose to keep the project's quota until enough of its work has ended, and no more of it than is lacking then.

    None where too much of it cannot be reclaimed and may stay for long, unless the workload has waited too long itself.
    For one that is larger than the quota, and within the fair share, the project's limit is kept alone. Nothing is kept
    for what no open node could take, or only with more than the project may hold.
    """
    if not draft.could_have(workload):
        return None
    ledger, project = draft.ledger, draft.ledger.project(workload.project)
    if workload.total_milli > project.quota_milli:
        return _limit_alone(draft, workload)
    running = _staying(draft, project.name)
    fixed = [each for each in running if not each.workload.preemptible]
    stays = sum(each.workload.total_milli for each in fixed if not each.ends_at)
    if stays + workload.total_milli > project.quota_milli and not draft.waited_too_long(workload):
        return None
    free_at, leaving = _leaving(running, ledger.after(workload) - project.quota_milli)
    below_cap_at, leaving_cap = _leaving(running, ledger.after(workload) - project.cap_milli)
    claim = Claim(workload, Standing.DEFERRED, (), free_at, leaving=leaving, leaving_cap=leaving_cap)
    if workload.preemptible:
        return replace(claim, stays=_is_in_the_way(running, workload, project.quota_milli))
    free_at, leaving = _leaving(fixed, ledger.after(workload, fixed=True) - project.quota_milli)
    stays = _is_in_the_way(fixed, workload, project.quota_milli)
    stays |= _is_in_the_way(running, workload, project.cap_milli)
    return replace(claim, free_at=max(free_at, below_cap_at), stays=stays, leaving_fixed=leaving)


def _limit_alone(draft: Draft, workload: Workload) -> Claim | None:
    """Propose to keep the project's limit for what can never be within its quota, and nothing of that."""
    ledger, project, asked = draft.ledger, draft.ledger.project(workload.project), workload.total_milli
    if not workload.preemptible or asked > ledger.fair.get(project.name, 0) or project.limit_milli is None:
        return None
    running = _staying(draft, project.name)
    stays = sum(each.workload.total_milli for each in running if not (each.workload.preemptible or each.ends_at))
    if stays + asked > project.cap_milli:
        return None
    free_at, leaving_cap = _leaving(running, ledger.after(workload) - project.cap_milli)
    is_behind = _is_in_the_way(running, workload, project.cap_milli)
    return Claim(workload, Standing.DEFERRED, (), free_at, stays=is_behind, leaving=asked, leaving_cap=leaving_cap)


def _is_in_the_way(running: Sequence[Running], workload: Workload, most_milli: int) -> bool:
    """Return whether too much would be left for the workload were all gone that end, or that it may stop."""
    left = [each.workload for each in running if not each.ends_at]
    stay = [each.total_milli for each in left if not (each.preemptible and each.priority < workload.priority)]
    return sum(stay) + workload.total_milli > most_milli


def _staying(draft: Draft, project: str) -> list[Running]:
    """Return what runs of a project and is not being stopped."""
    return [each for each in draft.residents.of(project) if each.workload.id not in draft.terminating]


def _leaving(running: Sequence[Running], lacking: int) -> tuple[int, int]:
    """Return when so many milli-GPU have ended, and how many will have.

    Of those whose end nobody knows it may be any that end first: no more is counted than what is lacking, in the unit
    of their sizes.
    """
    free_at = gone = 0
    for each in sorted((each for each in running if each.ends_at), key=lambda each: each.ends_at):
        if gone >= lacking:
            break
        gone += each.workload.total_milli
        free_at = each.ends_at
    if gone >= lacking:
        return free_at, gone
    unit = gcd(*(each.workload.total_milli for each in running if not each.ends_at)) or 1
    return NEVER, gone + -((gone - lacking) // unit) * unit


def soonest(draft: Draft, workload: Workload, before: Places = (), *, ends_only: bool = False) -> Found | None:
    """Return places with the fewest milli-GPU of others in the way, and who those are; None where there are none.

    They stay where they were `before`. Those that cannot be reclaimed and whose end nobody knows may stay for long, so
    places that they do not stand on go first; with `ends_only` it has to be known when the places are free.
    """
    pools = [VictimPool(everyone=True, soon_only=only, ends_only=ends_only) for only in (True, False)]
    return _soonest(draft, workload, before, pools[:1] if ends_only else pools)


def soonest_among_own(draft: Draft, workload: Workload, before: Places, *, ends_only: bool = False) -> Found | None:
    """Return places with the fewest milli-GPU in the way of its own project, or also of who is beyond its quota."""
    own = frozenset([workload.project])
    pools = [
        VictimPool(everyone=True, soon_only=False, ends_only=ends_only, of=of)
        for of in (own, own | draft.ledger.over_quota("").keys())
    ]
    return _soonest(draft, workload, before, pools)


def _soonest(draft: Draft, workload: Workload, before: Places, pools: Sequence[VictimPool]) -> Found | None:
    of, ends_only = pools[-1].of, pools[-1].ends_only
    if before:
        in_the_way = _on(draft, before)
        with draft.once_gone(in_the_way):
            may_stay = of is None or all(each.workload.project in of for each in in_the_way)
            may_stay &= not ends_only or all(each.ends_at for each in in_the_way)
            if may_stay and draft.later.has_free(before, workload):
                return before, in_the_way
    free_now = draft.later.find(workload)
    if free_now is not None:
        return free_now, ()
    for pool in pools:
        in_the_way = cheapest(draft.later, draft.residents, workload, replace(pool, taken=draft.terminating)) or ()
        with draft.once_gone(in_the_way):
            places = draft.later.find(workload) if in_the_way else None
        if places:
            return places, in_the_way
    return None


def _on(draft: Draft, places: Places) -> tuple[Running, ...]:
    """Return who runs on these places and is not being stopped."""
    on = {each.workload.id: each for node in {place.node for place in places} for each in draft.residents.on(node)}
    wanted = {(place.node, share.uuid) for place in places for share in place.shares}
    return tuple(
        each
        for id_, each in on.items()
        if id_ not in draft.terminating
        and (not wanted or any((place.node, s.uuid) in wanted for place in each.placements for s in place.shares))
    )


def _last_end(running: Iterable[Running]) -> int:
    return max((each.ends_at or NEVER for each in running), default=0)
