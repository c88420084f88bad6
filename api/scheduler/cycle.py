"""Cycle: one decision, which serves the queue in the order of fairness, on a cluster that is left as it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import gcd

from api.scheduler import allocate
from api.scheduler.claims import Claim, Standing
from api.scheduler.consolidate import consolidate
from api.scheduler.draft import Before, Draft, PlannerState, Statement, Vain
from api.scheduler.fairness import ProjectDemand
from api.scheduler.grow import grow
from api.scheduler.order import Order
from api.scheduler.pending_reasons import PendingWorkload
from api.scheduler.reclaim import may_be_for, pools, reclaim
from api.scheduler.reserve import Reserve, quota_alone
from api.scheduler.shares import Shares
from api.scheduler.snapshot import Decision, SchedulerSettings, Workload, taking
from api.scheduler.topology import allowed

NOBODY: frozenset[str] = frozenset()
VainPast = defaultdict[frozenset[str], Vain]
"""What was tried in vain past the claims of these workloads."""


class Cycle:
    """Serves a queue once."""

    def __init__(
        self,
        state: PlannerState,
        queue: Sequence[Workload],
        now: int,
        settings: SchedulerSettings,
        before: Before,
    ) -> None:
        """Begin; `before` is what the decision before kept."""
        self.draft = Draft(state, now, settings, before.left_out)
        self.ledger, self.claims = self.draft.ledger, self.draft.claims
        self.before, self.was_nominated = before.reservations, before.nominated
        self.feasibility, self.growing = state.feasibility, state.growing.values()
        self.queues: dict[str, list[Workload]] = defaultdict(list)
        self.infeasible: list[Workload] = []
        for workload in sorted(queue, key=lambda item: (-item.priority, item.submitted_at, item.id)):
            never = self.feasibility.never_fits(workload)
            is_refused = never or self.ledger.beside.can_never(workload)
            (self.infeasible if is_refused else self.queues[workload.project]).append(workload)
        demands = self._demands()
        self.ledger.shares = Shares.of(state.capacity, demands, state.domains)
        self._guarantees_fit = sum(demand.guaranteed for demand in demands) <= state.capacity
        self._for_guarantees = Reserve(self.draft, Standing.DEFERRED)
        self._for_fair_shares = Reserve(self.draft, Standing.SOFT)
        self._vain: VainPast = defaultdict(Vain)
        self._given_up = False
        self._nominated_beyond: dict[str, Claim] = {}
        if settings.consolidation:
            self.draft.note_moves([*queue, *(each.workload for each in state.terminating.values())])

    def run(self) -> Decision:
        """Serve the queue and return the decision."""
        with self.draft.cluster.trial(), self.draft.later.trial():
            nominated = self._nominate_again()
            self._reserve_fair_shares()
            self._reserve_among_own()
            order = Order(self.draft, self.queues, guarantees_fit=self._guarantees_fit)
            for workload in chain(order.of(nominated, self._nominated_beyond), self.infeasible):
                self._serve(workload)
            self._serve_again()
            grow(self.draft, self.growing)
            return self.draft.decision()

    def _demands(self) -> list[ProjectDemand]:
        """Return what each project has and asks for; what can never run asks for nothing."""
        names = sorted({*self.ledger.projects, *self.ledger.holdings})
        demands: list[ProjectDemand] = []
        for name in names:
            project, own = self.ledger.project(name), self.ledger.holdings_of(name)
            able = [item for item in self.queues.get(name, ()) if item.total_milli]
            fixed = sum(item.total_milli for item in able if not item.preemptible)
            left = max(0, project.quota_milli - own.fixed_retained)
            asked = min(fixed, left) + sum(item.total_milli for item in able if item.preemptible)
            unit = gcd(*own.sizes, *(item.total_milli for item in able)) or 1
            demands.append(ProjectDemand(project, own.retained + asked, own.retained, unit))
        return demands

    def _nominate_again(self) -> list[Workload]:
        """Keep places that are free now, or about to be, for whom they were kept: nobody is stopped in vain.

        Those for whom others were stopped go first, then guarantees, which may have passed over the places of others.
        Those of one that is moved stay its own until it is in the queue.
        """
        waiting = {workload.id: workload for queue in self.queues.values() for workload in queue}
        leaving = {id_: running.workload for id_, running in self.draft.terminating.items()}
        nominated: list[Workload] = []
        for id_ in sorted(self.before.keys() & leaving.keys()):
            if self.draft.later.has_free(self.before[id_], leaving[id_]):
                self.draft.keep(Claim(leaving[id_], Standing.NOMINATED, self.before[id_], stopped_for=True))
        kept = [workload for id_, workload in waiting.items() if id_ in self.before]
        for workload in sorted(
            kept, key=lambda item: (item.id not in self.was_nominated, self._goes_beyond(item), item.id)
        ):
            places, stopped_for = self.before[workload.id], workload.id in self.was_nominated
            may = self.ledger.may_retain(taking(workload, places)) and not self.draft.lacks_network(workload)
            if may and self.draft.later.has_free(places, workload):
                self.queues[workload.project].remove(workload)
                claim = Claim(workload, Standing.NOMINATED, places, stopped_for=stopped_for)
                self.draft.keep(claim)
                if not (stopped_for or (workload.total_milli and self.ledger.in_quota(workload))):
                    self._nominated_beyond[workload.id] = claim
                    # a guarantee may have it before
                    self.draft.networks.keep(workload, self.draft.network_rank(workload))
                nominated.append(workload)
        return nominated

    def _reserve_fair_shares(self) -> None:
        """Reserve places for the first of each project that waits long for its fair share beyond the quota.

        One that the limit of its project is too small for as yet has none, and lets nobody have some before it.
        """
        heads = [head for queue in self.queues.values() if (head := next(filter(self._wants_more, queue), None))]
        for workload in sorted(filter(self.ledger.may_retain, heads), key=lambda item: (item.waiting_since, item.id)):
            if self.ledger.within_fair_share(workload) and self.draft.waited_long(workload):
                claim = self._for_fair_shares.places(workload, self.before.get(workload.id, ()))
                if claim:
                    self.draft.keep(claim)

    def _reserve_among_own(self) -> None:
        """Reserve places for the first of each project that waits too long for its quota, where that is no hard cap.

        Its project would use the GPUs that become free one by one, so that there would never be enough of them.
        """
        heads = [head for queue in self.queues.values() if (head := next(filter(self._waits_for_quota, queue), None))]
        for workload in sorted(heads, key=lambda item: (item.waiting_since, item.id)):
            is_alone = not self.claims.of(workload) and self._for_fair_shares.may_ask(workload)
            if is_alone and self.draft.waited_too_long(workload) and self.ledger.may_retain(workload):
                own = [each for each in self.claims.with_places() if each.workload.project == workload.project]
                with self.draft.without(own):
                    found = self._for_fair_shares.places(workload, self.before.get(workload.id, ()), among_own=True)
                if found:
                    self.draft.keep(found)

    def _waits_for_quota(self, workload: Workload) -> bool:
        """Return whether it waits long for a quota that would do for it and is no hard cap."""
        project = self.ledger.project(workload.project)
        is_enough = project.over_quota and 0 < workload.total_milli <= project.quota_milli
        waits = is_enough and self.draft.waited_long(workload) and not self.ledger.in_quota(workload)
        return waits and self.draft.could_have(workload)

    def _wants_more(self, workload: Workload) -> bool:
        """Return whether it could have more than the quota in time."""
        return (
            bool(workload.total_milli)
            and not self.ledger.in_quota(workload)
            and self.ledger.may_be_fixed(workload)
            and self.draft.could_have(workload)
            and not self.draft.lacks_network(workload)
        )

    def _goes_beyond(self, workload: Workload) -> bool:
        return not self.ledger.in_quota(workload) and self.ledger.may_retain(workload)

    def _serve(self, workload: Workload) -> None:
        """Start a workload, make room for it, reserve places for it, or let it wait."""
        never = self.feasibility.never_fits(workload)
        if never:
            self.draft.wait(PendingWorkload(workload, never=never))
            return
        claim, network = self.claims.of(workload), self.draft.lacks_network(workload)
        if network and claim:
            self._keep(claim, None)
            claim, self._given_up = None, True
        statement = None if network else self._statement(workload, claim)
        if statement:
            self._commit(statement)
            return
        if claim is None or not claim.places:
            self._reserve(workload)
        elif claim.standing is Standing.NOMINATED:
            # places of one beyond its quota went to a guarantee: what that left of them is for others
            is_lost = workload.id in self._nominated_beyond
            self._given_up |= is_lost
            self._keep(claim, None if is_lost else replace(claim, standing=_standing(workload), stopped_for=False))
        self.draft.wait(PendingWorkload(workload, refused=self._refused(workload), network=network))

    def _statement(self, workload: Workload, claim: Claim | None) -> Statement | None:
        """Return what is proposed for a workload; what it gives back itself may be room, whatever was full before."""
        if claim is None or not claim.places:
            return self._proposed(workload, self._vain)
        with self.draft.without([claim]):
            if claim.standing is Standing.NOMINATED:
                found = allocate.now(self.draft, workload, Vain()) or allocate.kept(self.draft, claim)
                if found:
                    return found
            return self._proposed(workload, defaultdict(Vain))

    def _proposed(self, workload: Workload, vain: VainPast) -> Statement | None:
        """Return places that are free, being freed, or reclaimed from others.

        Who has a better right passes over soft claims before anybody is stopped for it.
        """
        found = allocate.now(self.draft, workload, vain[NOBODY])
        soft = [] if found else self._within_reach(workload, self._passed_over_by(workload))
        if found or not soft:
            return found or self._later(workload, vain[NOBODY])
        past = vain[frozenset(claim.workload.id for claim in soft)]
        if self._is_vain(workload, past):
            return None
        with self.draft.without(soft):
            return allocate.now(self.draft, workload, past) or self._later(workload, past)

    def _passed_over_by(self, workload: Workload) -> list[Claim]:
        """Return the claims that it may pass over: without GPUs not those that have CPU or memory guaranteed.

        Those are the soft ones, and of other projects what is nominated beyond the quota and nobody was stopped for.
        What is within the fair share passes over those of other projects which are, by now, beyond theirs; in its own
        project each passes over those of a lower priority, which it could stop once they had begun.
        """
        if not self.ledger.in_quota(workload):
            project, is_fair = workload.project, workload.total_milli and self.ledger.within_fair_share(workload)
            return [
                each
                for each in self.claims.soft()
                if (
                    each.workload.priority < workload.priority
                    if each.workload.project == project
                    else is_fair and not self.ledger.within_fair_share(each.workload)
                )
            ]
        beyond = [
            each
            for each in self._nominated_beyond.values()
            if each.workload.project != workload.project and self.claims.of(each.workload) is each
        ]
        passed = [*self.claims.soft(), *beyond]
        if workload.total_milli:
            return passed
        beside = self.ledger.beside
        if not beside.is_guaranteed(workload):
            return []
        return [each for each in passed if each.workload.total_milli or not beside.is_guaranteed(each.workload)]

    def _within_reach(self, workload: Workload, claims: Sequence[Claim]) -> list[Claim]:
        """Return those of the claims that keep something on nodes which the workload may use."""
        layout = self.draft.cluster.layout
        may, rows = allowed(layout, workload), layout.rows
        return [each for each in claims if any(may[rows[place.node]] for place in each.places if place.node in rows)]

    def _later(self, workload: Workload, vain: Vain) -> Statement | None:
        return (
            allocate.later(self.draft, workload, vain)
            or consolidate(self.draft, workload, vain)
            or reclaim(self.draft, workload, vain)
        )

    def _is_vain(self, workload: Workload, vain: Vain) -> bool:
        """Return whether there is nothing that was not tried in vain for the like of it."""
        if workload not in vain.now or (workload not in vain.later and self.draft.is_being_freed(workload)):
            return False
        if not may_be_for(self.draft, workload) or next(pools(self.draft, workload, vain), None) is None:
            return True
        return not self.draft.turns.may_search(workload)

    def _commit(self, statement: Statement) -> None:
        """Make it part of the decision."""
        claim = self.claims.of(statement.workload)
        self._given_up |= claim is not None and claim.places not in ((), statement.places)
        self.draft.commit(statement)
        if statement.victims:
            for vain in self._vain.values():
                vain.later.clear()

    def _serve_again(self) -> None:
        """Start those for whom there is room by now: somebody who was served after them gave up places."""
        if not self._given_up:
            return
        vain = Vain()
        for waiting in [item for item in self.draft.waiting if not item.never]:
            claim = self.claims.of(waiting.workload)
            if claim and claim.standing is Standing.NOMINATED:
                continue
            with self.draft.without([claim] if claim else []):
                statement = allocate.now(self.draft, waiting.workload, Vain() if claim else vain)
            if statement:
                self.draft.wait_no_more(waiting)
                self.draft.commit(statement)

    def _keep(self, old: Claim | None, new: Claim | None) -> None:
        """Let one claim take the place of another."""
        if old:
            self.draft.release(old)
        if new:
            self.draft.keep(new)

    def _reserve(self, workload: Workload) -> None:
        """Keep places for a workload within its quota that found none, not even by reclaiming.

        Without GPUs also for one beyond the quota: nobody who has a right waits for these.
        """
        # who is left out keeps what it had, and finds no more before it has had its turn
        is_done = workload.id in self.before or not self.draft.turns.is_left_out(workload)
        is_first = is_done and may_be_for(self.draft, workload) and self._for_guarantees.may_ask(workload)
        may_ask = self.ledger.may_retain(workload) and (self.ledger.in_quota(workload) or not workload.total_milli)
        if is_first and self.draft.waited_long(workload) and may_ask:
            found = self._for_guarantees.places(workload, self.before.get(workload.id, ()))
            if found and not self.ledger.may_retain(found.taking):
                # a place that counts for more than it asks for is of no use to it before its project holds less
                found = quota_alone(self.draft, found.taking)
            if found:
                self._keep(self.claims.of(workload), replace(found, standing=_standing(workload)))

    def _refused(self, workload: Workload) -> Workload | None:
        """Return what the project may not have: the workload, or what it would take on the places that there are."""
        wanted = workload, self.draft.too_much.get(workload.id)
        return next((item for item in wanted if item and not self.ledger.may_retain(item)), None)


def _standing(workload: Workload) -> Standing:
    """Return what places count for that are kept for a guarantee; who needs no GPU has none against those who do."""
    return Standing.DEFERRED if workload.total_milli else Standing.SOFT
