"""Cycle: one decision, which serves the queue in the order of fairness, on a cluster that is left as it was.

Places that are reserved, or that a workload is nominated for (those who hold them are being stopped), are allocated
beside those who are still there: more is then held than there is, and nobody else gets them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heapify, heappop, heappush
from math import gcd

from api.scheduler import pending_reasons, reservations
from api.scheduler.cluster import ClusterState
from api.scheduler.fairness import ProjectDemand, fair_shares, in_whole_workloads
from api.scheduler.feasibility import Feasibility
from api.scheduler.ledger import NO_SHARE, Holdings, Ledger
from api.scheduler.pending_reasons import PendingWorkload
from api.scheduler.reclaim import cheapest
from api.scheduler.reservations import NEVER, Reservation
from api.scheduler.residents import Residents
from api.scheduler.signature import Frontier, signature_of
from api.scheduler.snapshot import (
    Decision,
    Placement,
    ProjectState,
    Reclaim,
    Running,
    SchedulerSettings,
    Workload,
    taking,
)
from api.scheduler.victims import VictimPool

SECOND = 1_000_000
SCALE = 1 << 32
NOMINATIONS_CHECKED = 20
"""So many workloads that wait already, each with its own scheduling signature, are asked whether they would take the
room that is freed for another."""
RECLAIMED_FOR = 32
"""For so many workloads others are reclaimed in one decision, each after a search for the fewest. Those that come
after them in the order have their turn in the next decision, which the end of those that terminate brings about."""
RESERVED_FOR = 16
"""For so many projects, those whose first workload waits longest, places are looked for in one decision: others wait
behind; and for as many again for their fair shares."""
RESERVED_PART = 8
"""No more than this part of the GPUs stands idle for guarantees that wait long, and as much for fair shares; one
reservation of each kind is made in any case."""

Places = tuple[Placement, ...]
May = Callable[[Workload], bool]
Key = tuple[int, int, int, str]
Pool = tuple[str, bool] | tuple[str, str, int]


@dataclass(frozen=True)
class Vain:
    """What was tried in vain: places that are free now or later, and who could make room, by kind of pool."""

    now: Frontier = field(default_factory=partial(Frontier, least=True))
    later: Frontier = field(default_factory=partial(Frontier, least=True))
    pools: defaultdict[Pool, Frontier] = field(default_factory=lambda: defaultdict(partial(Frontier, least=True)))


@dataclass(frozen=True)
class PlannerState:
    """What a planner knows between decisions: the cluster `now`, and `later`, without those that are terminating."""

    now: ClusterState
    later: ClusterState
    residents: Residents
    projects: Mapping[str, ProjectState]
    holdings: Mapping[str, Holdings]
    terminating: Mapping[str, Running]
    capacity: int
    feasibility: Feasibility


class Cycle:
    """Serves a queue once."""

    def __init__(
        self,
        state: PlannerState,
        queue: Sequence[Workload],
        now: int,
        settings: SchedulerSettings,
        before: Mapping[str, Places],
    ) -> None:
        """Begin; `before` are the reservations of the decision before."""
        self.cluster, self.later, self.residents = state.now, state.later, state.residents
        self.now, self.settings = now, settings
        self.terminating = dict(state.terminating)
        self._reclaimed_for = 0
        self._may_be_idle = state.capacity // RESERVED_PART
        self._idle: Counter[bool] = Counter()
        self._heads: dict[bool, set[str]] = {True: set(), False: set()}
        self.feasibility = state.feasibility
        self.ledger = Ledger.of(state.projects, state.holdings)
        self.queues: dict[str, list[Workload]] = defaultdict(list)
        self.infeasible: list[Workload] = []
        self.deferred: set[str] = set()
        for workload in sorted(queue, key=lambda item: (-item.priority, item.submitted_at, item.id)):
            never = self.feasibility.never_fits(workload)
            (self.infeasible if never else self.queues[workload.project]).append(workload)
        demands = self._demands()
        self.ledger.exact = fair_shares(state.capacity, demands)
        self.ledger.fair = in_whole_workloads(self.ledger.exact, demands)
        self.guarantees_fit = sum(demand.guaranteed for demand in demands) <= state.capacity
        self.placed: dict[str, Places] = {}
        self.reclaims: list[Reclaim] = []
        self.reservations: dict[str, Reservation] = {}
        self.soft_reservations: set[str] = set()
        self.nominated: dict[str, Workload] = {}
        self.before = before
        self.too_much: dict[str, Workload] = {}
        self.waiting: list[PendingWorkload] = []
        self.log: list[str | PendingWorkload] = []
        self._vain = Vain()
        self._vain_unreserved = Vain()

    def run(self) -> Decision:
        """Serve the queue and return the decision."""
        with self.cluster.trial(), self.later.trial():
            self._nominate_again()
            self._reserve_fair_shares()
            for workload in self._in_order():
                self._serve(workload)
            explained = pending_reasons.explain(self.cluster, self.ledger, self.waiting, self.reservations.values())
        lines = (item if isinstance(item, str) else pending_reasons.line(item, explained) for item in self.log)
        reserved = {id_: each.places for id_, each in self.reservations.items()}
        return Decision(self.placed, tuple(self.reclaims), explained, tuple(lines), reserved)

    def _nominate_again(self) -> None:
        """Keep places that are free now, or about to be, for whom they were kept: nobody is stopped in vain."""
        waiting = {workload.id: workload for queue in self.queues.values() for workload in queue}
        for id_ in sorted(self.before.keys() & waiting.keys()):
            workload, places = waiting[id_], self.before[id_]
            if self.later.has_free(places, workload):
                self.nominated[id_] = workload
                self.queues[workload.project].remove(workload)
                self._reserve(Reservation(workload, places))
                self.ledger.holdings_of(workload.project).nominate(workload)

    def _demands(self) -> list[ProjectDemand]:
        """Return what each project has and asks for; what can never run asks for nothing."""
        names = sorted({*self.ledger.projects, *self.ledger.holdings})
        demands: list[ProjectDemand] = []
        for name in names:
            project, own = self.ledger.project(name), self.ledger.holdings_of(name)
            able = [
                item for item in self.queues.get(name, ()) if item.total_milli and not self.feasibility.never_fits(item)
            ]
            fixed = sum(item.total_milli for item in able if not item.preemptible)
            left = max(0, project.quota_milli - own.fixed_retained)
            asked = min(fixed, left) + sum(item.total_milli for item in able if item.preemptible)
            unit = gcd(*own.sizes, *(item.total_milli for item in able)) or 1
            demands.append(ProjectDemand(project, own.retained + asked, own.retained, unit))
        return demands

    def _in_order(self) -> Iterator[Workload]:
        """Yield the queue: what is nominated, then what is guaranteed, also past larger ones that are not."""
        yield from sorted(self.nominated.values(), key=lambda item: (item.submitted_at, item.id))
        rest: dict[str, list[Workload]] = defaultdict(list)
        queues = {name: self._guaranteed(queue, rest[name]) for name, queue in self.queues.items()}
        yield from self._by_share(queues)
        yield from self._by_share({name: iter(queue) for name, queue in rest.items()})
        yield from self.infeasible

    def _guaranteed(self, queue: Sequence[Workload], rest: list[Workload]) -> Iterator[Workload]:
        """Yield what is within the quota when its turn comes; the rest comes after.

        For one that could be within the quota and waits for long the quota is kept: it does not starve behind others.
        No more is kept than there is.
        """
        for workload in queue:
            if self.ledger.in_quota(workload):
                yield workload
                continue
            rest.append(workload)
            quota, own = self.ledger.project(workload.project).quota_milli, self.ledger.holdings_of(workload.project)
            if own.deferred + workload.total_milli <= quota and self._waited_long(workload):
                self.deferred.add(workload.id)
                own.defer(workload)

    def _by_share(self, queues: Mapping[str, Iterator[Workload]]) -> Iterator[Workload]:
        """Yield from the queues, each time the first of the project that is furthest below its share."""
        heads = {name: head for name, queue in queues.items() if (head := next(queue, None))}
        heap = [(self._key(head), name) for name, head in heads.items()]
        heapify(heap)
        while heap:
            key, name = heappop(heap)
            current = self._key(heads[name])
            if current != key:  # something was reclaimed from the project since
                heappush(heap, (current, name))
                continue
            yield heads[name]
            following = next(queues[name], None)
            if following is not None:
                heads[name] = following
                heappush(heap, (self._key(following), name))

    def _key(self, workload: Workload) -> Key:
        """Rank a workload: guaranteed before fair before the rest, then by how little of its share the project has.

        Guarantees are served in the order of submission as long as there is enough for all of them.
        """
        in_quota = self.ledger.in_quota(workload)
        if in_quota and (self.guarantees_fit or self._waited_long(workload)):
            return 0 if self._waited_long(workload) else 1, 0, workload.submitted_at, workload.id
        fair = self.ledger.exact.get(workload.project, 0)
        retained = self.ledger.holdings_of(workload.project).retained
        ratio = retained * SCALE // fair if fair else NO_SHARE
        tier = 1 if in_quota else 2 if retained + workload.total_milli <= fair else 3
        return tier, ratio, workload.submitted_at, workload.id

    def _serve(self, workload: Workload) -> None:
        """Place a workload, make room for it, reserve places for it, or let it wait."""
        never = self.feasibility.never_fits(workload)
        if never:
            self._wait(PendingWorkload(workload, never=never))
            return
        deferred = workload.id in self.deferred
        if deferred:
            self.ledger.holdings_of(workload.project).defer(workload, -1)
        reserved = self.reservations.pop(workload.id, None)
        self.soft_reservations.discard(workload.id)
        if reserved:
            self._release(reserved.places, workload)
        if workload.id in self.nominated:
            self.ledger.holdings_of(workload.project).nominate(workload, -1)
        if self._start(workload, fresh=reserved is not None):
            return
        if reserved is None and self._is_to_be_reserved_for(workload):
            reserved = self._reservation(workload, soft=False)
        refused = self._refused(workload)
        if reserved:
            self._reserve(reserved)
        deferred = deferred or reserved is not None
        if deferred:
            self.ledger.holdings_of(workload.project).defer(workload)
        places = reserved.places if reserved else ()
        self._wait(PendingWorkload(workload, refused=refused, deferred=deferred, reserved=places))

    def _refused(self, workload: Workload) -> Workload | None:
        """Return what the project may not have: the workload, or what it would take on the places that there are."""
        wanted = workload, self.too_much.get(workload.id)
        return next((item for item in wanted if item and not self.ledger.may_retain(item)), None)

    def _start(self, workload: Workload, *, fresh: bool) -> bool:
        """Place a workload now, on places that become free, or on places that are reclaimed from others.

        What is guaranteed passes over places that are only softly reserved, for others' fair share, before anybody is
        stopped for it. `fresh` says that places were given back, so that what was full before may have room again.
        """
        vain = Vain() if fresh else self._vain
        if self._start_now(workload, vain):
            return True
        if not self.soft_reservations or not self.ledger.in_quota(workload):
            return self._start_later(workload, vain)
        unreserved = Vain() if fresh else self._vain_unreserved
        if self._is_vain(workload, unreserved):
            return False
        soft = [each for id_, each in self.reservations.items() if id_ in self.soft_reservations]
        for each in soft:
            self._release(each.places, each.workload)
        started = self._start_now(workload, unreserved) or self._start_later(workload, unreserved)
        for each in soft:
            self._allocate(each.places, each.workload)
        return started

    def _is_vain(self, workload: Workload, vain: Vain) -> bool:
        """Return whether there is nothing that was not tried in vain for the like of it."""
        if workload not in vain.now or (self.terminating and workload not in vain.later):
            return False
        return self._reclaimed_for >= RECLAIMED_FOR or next(self._pools(workload, vain), None) is None

    def _start_now(self, workload: Workload, vain: Vain) -> bool:
        if not self.ledger.may_hold(workload):
            return False
        places = self._find_within(self.cluster, workload, vain.now, self.ledger.may_hold)
        places = places or self._find_before_others(workload)
        if places:
            self._place(workload, places)
        return places is not None

    def _find_before_others(self, workload: Workload) -> Places | None:
        """Find places that are reserved for later: a workload that ends before delays nobody."""
        ends_at = self.now + workload.limit_s * SECOND
        later = [each for each in self.reservations.values() if ends_at <= each.free_at < NEVER]
        if not workload.limit_s or not later:
            return None
        with self.cluster.trial():
            for each in later:
                self.cluster.release(each.places, each.workload)
            return self._find_within(self.cluster, workload, Frontier(least=True), self.ledger.may_hold)

    def _start_later(self, workload: Workload, vain: Vain) -> bool:
        """Nominate a workload for places of those that are terminating, or are reclaimed for it."""
        if self.terminating and self.ledger.may_retain(workload):
            places = self._find_within(self.later, workload, vain.later, self.ledger.may_retain)
            if places:
                self._nominate(
                    workload, places, pending_reasons.blockers(self.terminating.values(), places, workload.project)
                )
                return True
        return self._reclaim_for(workload, vain)

    def _reclaim_for(self, workload: Workload, vain: Vain) -> bool:
        """Reclaim from the smallest set of victims that makes room, and nominate the workload for it."""
        if self._reclaimed_for >= RECLAIMED_FOR:
            return False
        for kind, pool in self._pools(workload, vain):
            victims = cheapest(self.later, self.residents, workload, pool)
            if not victims:
                vain.pools[kind].add(workload)
            places = self._places_without(victims, workload, pool) if victims else None
            if victims and places and self._may_take(workload, places, self.ledger.may_retain):
                self._reclaimed_for += 1
                self._reclaim(workload, victims)
                self._nominate(workload, places, pending_reasons.names(victims, workload.project))
                return True
        return False

    def _pools(self, workload: Workload, vain: Vain) -> Iterator[tuple[Pool, VictimPool]]:
        """Yield those who may have to make room, in the order in which they are asked, but none asked in vain.

        Beyond their lines are the same projects for all that are within theirs; of its own each has others.
        """
        ledger, project = self.ledger, workload.project
        if not ledger.may_be_fixed(workload):
            return
        until = self.now - self.settings.min_runtime_s * SECOND if self.settings.min_runtime_s else NO_SHARE
        pool = partial(VictimPool, until=until, taken=self.terminating)
        due, quota, in_quota = ledger.due(workload), ledger.project(project).quota_milli, ledger.in_quota(workload)
        if workload.total_milli and not due and (in_quota or ledger.within_fair_share(workload)):
            for last_may_pass in (False, True):
                kind: Pool = ("quota" if in_quota else "fair", last_may_pass)
                beyond = ledger.over_quota if in_quota else ledger.over_fair_share
                if workload not in vain.pools[kind] and (surplus := beyond(project)):
                    yield kind, pool(surplus, last_may_pass=last_may_pass)
        if not self.residents.has_below(project, workload.priority):
            return
        own = partial(pool, own=project, below=workload.priority)
        # What could be guaranteed goes before what never can: reclaimed for that, it would be the first to return.
        spared = quota if workload.total_milli > quota else -1
        alone: Pool = ("own", project, workload.priority)
        if workload not in vain.pools[alone]:
            yield alone, own(spared=spared, due=due)
        both: Pool = ("both", project, workload.priority)
        if 0 < workload.total_milli <= quota and workload not in vain.pools[both]:
            surplus = ledger.over_quota(project)
            if surplus:
                yield both, own(surplus, last_may_pass=True, due=max(0, ledger.after(workload) - quota))

    def _places_without(self, victims: Collection[Running], workload: Workload, pool: VictimPool) -> Places | None:
        """Return where the workload goes without them; None where one that waits before it would take the room."""
        with self.later.trial():
            for running in victims:
                self.later.release(running.placements, running.workload)
            if pool.own:
                before = {signature_of(item.workload): item.workload for item in self.waiting if not item.never}
                for other in list(before.values())[:NOMINATIONS_CHECKED]:
                    if self.ledger.may_retain(other) and self.later.find(other) is not None:
                        return None
            return self.later.find(workload)

    def _reclaim(self, workload: Workload, victims: Collection[Running]) -> None:
        for running in victims:
            victim = running.workload
            reason = pending_reasons.reclaimed(self.ledger, victim, workload)
            self.reclaims.append(Reclaim(victim.id, workload.id, reason))
            whom = f"{pending_reasons.full_title(victim)} for {pending_reasons.full_title(workload)}"
            self.log.append(f"reclaimed: {whom}: {reason}")
            self.terminating[victim.id] = running
            self.later.release(running.placements, victim)
        self.ledger.reclaim(iter(victims))
        self._vain.later.clear()
        self._vain_unreserved.later.clear()

    def _place(self, workload: Workload, places: Places) -> None:
        self.placed[workload.id] = places
        self._allocate(places, workload)
        self.ledger.holdings_of(workload.project).add(taking(workload, places))
        what = f"{pending_reasons.full_title(workload)} on {pending_reasons.nodes(places)}"
        self.log.append(f"placed: {what}: {pending_reasons.holds(self.ledger, workload.project)}")

    def _nominate(self, workload: Workload, places: Places, terminating: str) -> None:
        """Nominate a workload for places: nobody else gets them until those who hold them are gone."""
        self._reserve(Reservation(workload, places))
        self.ledger.holdings_of(workload.project).nominate(workload)
        self._wait(PendingWorkload(workload, nominated=places, terminating=terminating))

    def _reserve(self, reservation: Reservation) -> None:
        self._allocate(reservation.places, reservation.workload)
        self.reservations[reservation.workload.id] = reservation

    def _wait(self, waiting: PendingWorkload) -> None:
        self.waiting.append(waiting)
        self.log.append(waiting)

    def _allocate(self, places: Places, workload: Workload) -> None:
        self.cluster.allocate(places, workload)
        self.later.allocate(places, workload)

    def _release(self, places: Places, workload: Workload) -> None:
        self.cluster.release(places, workload)
        self.later.release(places, workload)

    def _reserve_fair_shares(self) -> None:
        """Reserve places for the first of each project that waits long for its fair share beyond the quota."""
        heads = [head for queue in self.queues.values() if (head := next(filter(self._goes_beyond, queue), None))]
        heads = [head for head in heads if head.id not in self.reservations]
        for workload in sorted(heads, key=lambda item: (item.submitted_at, item.id)):
            if self.ledger.within_fair_share(workload) and self._waited_long(workload):
                reservation = self._reservation(workload, soft=True)
                if reservation:
                    self._reserve(reservation)
                    self.soft_reservations.add(workload.id)

    def _is_to_be_reserved_for(self, workload: Workload) -> bool:
        """Return whether places are reserved for a workload that found none, not even by reclaiming."""
        has_its_turn = self._reclaimed_for < RECLAIMED_FOR and workload.project not in self._heads[False]
        return has_its_turn and self._waited_long(workload) and self.ledger.in_quota(workload)

    def _reservation(self, workload: Workload, *, soft: bool) -> Reservation | None:
        """Return a reservation for the first of its project, unless too much of the cluster would stand idle."""
        if len(self._heads[soft]) >= RESERVED_FOR or self._idle[soft] >= max(1, self._may_be_idle):
            return None
        self._heads[soft].add(workload.project)
        before = self.before.get(workload.id, ())
        found = reservations.reserve(self.later, self.residents, workload, self.terminating, before)
        if found is None:
            return None
        idle = self.cluster.free_of(found.places)
        if self._idle[soft] and self._idle[soft] + idle > self._may_be_idle:
            return None
        self._idle[soft] += idle
        return found

    def _goes_beyond(self, workload: Workload) -> bool:
        return not self.ledger.in_quota(workload) and self.ledger.may_retain(workload)

    def _waited_long(self, workload: Workload) -> bool:
        return self.now - workload.waiting_since >= self.settings.reserve_after_s * SECOND

    def _find_within(self, cluster: ClusterState, workload: Workload, full: Frontier, may: May) -> Places | None:
        """Find places that the project may have; where a slice, which counts whole, is too much, look at GPUs alone."""
        places = _find(cluster, workload, full)
        if places is None or self._may_take(workload, places, may):
            return places
        return _find(cluster, replace(workload, on_slices=False), full)

    def _may_take(self, workload: Workload, places: Places, may: May) -> bool:
        """Return whether the project may have what these places take; remembers what that is where it may not."""
        if not self.cluster.layout.sliced or may(taking(workload, places)):
            return True
        self.too_much[workload.id] = taking(workload, places)
        return False


def _find(cluster: ClusterState, workload: Workload, full: Frontier) -> Places | None:
    """Find places; what asks for no less than one that found none needs no second look until places are given back."""
    if workload in full:
        return None
    places = cluster.find(workload)
    if places is None:
        full.add(workload)
    return places
