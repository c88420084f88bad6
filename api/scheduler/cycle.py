"""One decision: serves the queue in the order of fairness, on a cluster that is left as it was.

Places that are promised (those who hold them are being stopped) or reserved are held beside those who are still there:
more is then held than there is, and nobody else gets them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from api.scheduler import reserve, waits
from api.scheduler.cluster import Cluster
from api.scheduler.fairness import Claim, fair_shares
from api.scheduler.ledger import NO_SHARE, Ledger, Use
from api.scheduler.reclaim import cheapest
from api.scheduler.residents import Residents
from api.scheduler.shape import Shape, Verdicts, shape
from api.scheduler.snapshot import (
    Decision,
    Placement,
    ProjectState,
    Reclaim,
    Rules,
    Running,
    Workload,
    taking,
)
from api.scheduler.victims import Pool

SECOND = 1_000_000
SCALE = 1 << 32
PROMISES_CHECKED = 20
"""So many kinds of workloads that wait already are asked whether they would take the room that is freed for another."""
MADE_ROOM_FOR = 32
"""For so many workloads others are taken back in one decision, each after a search for the fewest. Those that come
after them in the order have their turn in the next decision, which the change of those that leave brings about."""
KEPT_FOR = 32
"""For so many workloads that wait long, the first in the order, places are kept: who comes after them waits behind."""

Places = tuple[Placement, ...]
May = Callable[[Workload], bool]
Key = tuple[int, int, int, str]


@dataclass(frozen=True)
class State:
    """What a planner knows between decisions: the cluster `now`, and `later`, once those who are leaving are gone."""

    now: Cluster
    later: Cluster
    residents: Residents
    projects: Mapping[str, ProjectState]
    uses: Mapping[str, Use]
    leaving: Mapping[str, Running]
    capacity: int
    verdicts: Verdicts


class Cycle:
    """Serves a queue once."""

    def __init__(self, state: State, queue: Sequence[Workload], now: int, rules: Rules) -> None:
        self.cluster, self.later, self.residents = state.now, state.later, state.residents
        self.now, self.rules = now, rules
        self.gone = dict(state.leaving)
        self._made_room_for = self._kept_for = 0
        self.verdicts = state.verdicts
        self.ledger = Ledger.of(state.projects, state.uses)
        self.lanes: dict[str, list[Workload]] = defaultdict(list)
        self.hopeless: list[Workload] = []
        self.aside: set[str] = set()
        for workload in sorted(queue, key=lambda item: (-item.priority, item.submitted_at, item.id)):
            never = self.verdicts.never_fits(workload)
            (self.hopeless if never else self.lanes[workload.project]).append(workload)
        claims = self._claims()
        self.ledger.fair = fair_shares(state.capacity, claims)
        self.guarantees_fit = sum(claim.guaranteed for claim in claims) <= state.capacity
        self.placed: dict[str, Places] = {}
        self.reclaims: list[Reclaim] = []
        self.kept_for: dict[str, tuple[Workload, Places]] = {}
        self.soft: set[str] = set()
        self.too_much: dict[str, Workload] = {}
        self.waiting: list[waits.Waiting] = []
        self.log: list[str | waits.Waiting] = []
        self._full_now: set[Shape] = set()
        self._full_later: set[Shape] = set()
        self._no_victims: set[tuple[object, ...]] = set()
        self._not_even_unreserved: set[tuple[object, ...]] = set()

    def run(self) -> Decision:
        """Serve the queue and return the decision."""
        with self.cluster.trial(), self.later.trial():
            self._reserve_fair_shares()
            for workload in self._in_order():
                self._serve(workload)
            explained = waits.explain(self.cluster, self.waiting, self.kept_for.values())
        lines = (waits.line(item, explained) if isinstance(item, waits.Waiting) else item for item in self.log)
        kept = {id_: places for id_, (_, places) in self.kept_for.items()}
        return Decision(self.placed, tuple(self.reclaims), explained, tuple(lines), kept)

    def _claims(self) -> list[Claim]:
        """Return what each project has and asks for; what can never run asks for nothing."""
        names = sorted({*self.ledger.projects, *self.ledger.uses})
        claims: list[Claim] = []
        for name in names:
            project, use = self.ledger.project(name), self.ledger.use(name)
            able = [
                item for item in self.lanes.get(name, ()) if item.total_milli and not self.verdicts.never_fits(item)
            ]
            fixed = sum(item.total_milli for item in able if not item.preemptible)
            room = max(0, project.quota_milli - use.fixed_kept)
            asked = min(fixed, room) + sum(item.total_milli for item in able if item.preemptible)
            claims.append(Claim(project, use.kept + asked))
        return claims

    def _in_order(self) -> Iterator[Workload]:
        """Yield the queue: what is guaranteed first, also past larger ones of its project that are not."""
        rest: dict[str, list[Workload]] = defaultdict(list)
        lanes = {name: self._guaranteed(lane, rest[name]) for name, lane in self.lanes.items()}
        yield from self._by_share(lanes)
        yield from self._by_share({name: iter(lane) for name, lane in rest.items()})
        yield from self.hopeless

    def _guaranteed(self, lane: Sequence[Workload], rest: list[Workload]) -> Iterator[Workload]:
        """Yield what is within the quota when its turn comes; the rest is put aside.

        For one that could be within the quota and waits for long the quota is kept: it does not starve behind others.
        """
        for workload in lane:
            if self.ledger.in_quota(workload):
                yield workload
                continue
            rest.append(workload)
            quota = self.ledger.project(workload.project).quota_milli
            if workload.total_milli <= quota and self._waited_long(workload):
                self._set_aside(workload)

    def _set_aside(self, workload: Workload) -> None:
        self.aside.add(workload.id)
        self.ledger.use(workload.project).plan(workload)

    def _by_share(self, lanes: Mapping[str, Iterator[Workload]]) -> Iterator[Workload]:
        """Yield from the lanes, each time the first of the project that is furthest below its share."""
        heads = {name: head for name, lane in lanes.items() if (head := next(lane, None))}
        heap = [(self._key(head), name) for name, head in heads.items()]
        heapify(heap)
        while heap:
            key, name = heappop(heap)
            current = self._key(heads[name])
            if current != key:  # something was taken back from the project since
                heappush(heap, (current, name))
                continue
            yield heads[name]
            following = next(lanes[name], None)
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
        fair = self.ledger.fair.get(workload.project, 0)
        own = workload.total_milli if workload.id in self.aside else 0
        kept = max(0, self.ledger.use(workload.project).kept - own)
        ratio = kept * SCALE // fair if fair else NO_SHARE
        tier = 1 if in_quota else 2 if kept + workload.total_milli <= fair else 3
        return tier, ratio, workload.submitted_at, workload.id

    def _serve(self, workload: Workload) -> None:
        """Place a workload, make room for it, keep room for it, or let it wait."""
        never = self.verdicts.never_fits(workload)
        if never:
            self._wait(waits.Waiting(workload, never=never))
            return
        aside = workload.id in self.aside
        if aside:
            self.ledger.use(workload.project).plan(workload, -1)
        reserved = self.kept_for.pop(workload.id, None)
        self.soft.discard(workload.id)
        if reserved:
            self._give_back(reserved[1], workload)
        if self._start(workload, fresh=reserved is not None) or self._start_on_reserved(workload):
            return
        if reserved is None and self._is_to_be_kept_for(workload):
            reserved = self._reservation(workload)
            self._kept_for += reserved is not None
        refusal, beyond = waits.refusal(self.ledger, workload), waits.beyond(self.ledger, workload)
        if not refusal and workload.id in self.too_much:
            refusal = waits.refusal(self.ledger, self.too_much[workload.id])
        if reserved:
            self._keep(workload, reserved[1])
        if reserved or aside:
            self.ledger.use(workload.project).plan(workload)
        places = reserved[1] if reserved else ()
        self._wait(waits.Waiting(workload, refusal=refusal, beyond=beyond, reserved=places))

    def _start(self, workload: Workload, *, fresh: bool = False) -> bool:
        """Place a workload now, on places that become free, or on places that others are made to leave.

        `fresh` says that places were given back, so that what was full before may have room again.
        """
        kind = shape(workload)
        if self.ledger.may_hold(workload):
            places = self._find_within(self.cluster, workload, self._full_now, self.ledger.may_hold, fresh=fresh)
            if places:
                self._place(workload, places)
                return True
        if self.gone and self.ledger.may_keep(workload):
            places = self._find_within(self.later, workload, self._full_later, self.ledger.may_keep, fresh=fresh)
            if places:
                self._promise(workload, places, waits.blockers(self.gone.values(), places))
                return True
        known = (workload.project, workload.priority, kind)
        if not fresh and known in self._no_victims:
            return False
        found = self._make_room(workload)
        if not found:
            self._no_victims.add(known)
        return found

    def _start_on_reserved(self, workload: Workload) -> bool:
        """Let guaranteed work have places that are only kept for others' fair share, where it finds no other."""
        known = (workload.project, workload.priority, shape(workload))
        soft = [(item, places) for item, places in self.kept_for.values() if item.id in self.soft]
        if not soft or not self.ledger.in_quota(workload) or known in self._not_even_unreserved:
            return False
        for item, places in soft:
            self._give_back(places, item)
        started = self._start(workload, fresh=True)
        for item, places in soft:
            self._hold(places, item)
        if not started:
            self._not_even_unreserved.add(known)
        return started

    def _make_room(self, workload: Workload) -> bool:
        """Take back the smallest set of victims that makes room, and promise it to the workload."""
        if self._made_room_for >= MADE_ROOM_FOR:
            return False
        for pool in self._pools(workload):
            victims = cheapest(self.later, self.residents, workload, pool)
            places = self._places_without(victims, workload, pool) if victims else None
            if victims and places and self._may_take(workload, places, self.ledger.may_keep):
                self._made_room_for += 1
                self._take_back(workload, victims)
                self._promise(workload, places, waits.names(victims))
                return True
        return False

    def _pools(self, workload: Workload) -> Iterator[Pool]:
        """Yield those who may have to make room, in the order in which they are asked."""
        ledger, project = self.ledger, workload.project
        if not ledger.may_be_fixed(workload):
            return
        until = self.now - self.rules.min_runtime_s * SECOND if self.rules.min_runtime_s else NO_SHARE
        taken = self.gone
        due = ledger.due(workload)
        over_quota = ledger.over_quota(project) if workload.total_milli else {}
        if workload.total_milli and not due:
            if ledger.in_quota(workload) and over_quota:
                yield Pool(over_quota, until=until, taken=taken)
                yield Pool(over_quota, last_may_pass=True, until=until, taken=taken)
            elif not ledger.in_quota(workload) and ledger.within_fair_share(workload):
                over_fair_share = ledger.over_fair_share(project)
                if over_fair_share:
                    yield Pool(over_fair_share, until=until, taken=taken)
        if not self.residents.has_below(project, workload.priority):
            return
        quota = ledger.project(project).quota_milli
        # What could be guaranteed goes before what never can: taken back for that, it would be the first to return.
        spared = quota if workload.total_milli > quota else -1
        yield Pool(own=project, below=workload.priority, spared=spared, due=due, until=until, taken=taken)
        if over_quota and workload.total_milli <= quota:
            due = max(0, ledger.after(workload) - quota)
            yield Pool(
                over_quota, last_may_pass=True, own=project, below=workload.priority, due=due, until=until, taken=taken
            )

    def _places_without(self, victims: Collection[Running], workload: Workload, pool: Pool) -> Places | None:
        """Return where the workload goes without them; None where one that waits before it would take the room."""
        with self.later.trial():
            for running in victims:
                self.later.free(running.placements, running.workload)
            if pool.own:
                before = {shape(item.workload): item.workload for item in self.waiting if not item.never}
                for other in list(before.values())[:PROMISES_CHECKED]:
                    if self.ledger.may_keep(other) and self.later.find(other) is not None:
                        return None
            return self.later.find(workload)

    def _take_back(self, workload: Workload, victims: Collection[Running]) -> None:
        for running in victims:
            victim = running.workload
            reason = waits.reclaimed(self.ledger, victim, workload)
            self.reclaims.append(Reclaim(victim.id, workload.id, reason))
            self.log.append(f"taken back: {waits.title(victim)}: {reason}")
            self.gone[victim.id] = running
            self.later.free(running.placements, victim)
        self.ledger.take_back(iter(victims))
        self._full_later.clear()

    def _place(self, workload: Workload, places: Places) -> None:
        self.placed[workload.id] = places
        self._hold(places, workload)
        self.ledger.use(workload.project).add(taking(workload, places))
        self.log.append(
            f"placed: {waits.title(workload)} on {waits.nodes(places)}: {waits.holds(self.ledger, workload.project)}"
        )

    def _promise(self, workload: Workload, places: Places, leaving: str) -> None:
        """Keep places for a workload until those who hold them are gone."""
        self._keep(workload, places)
        self.ledger.use(workload.project).plan(workload)
        self._wait(waits.Waiting(workload, promised=places, leaving=leaving))

    def _keep(self, workload: Workload, places: Places) -> None:
        self._hold(places, workload)
        self.kept_for[workload.id] = workload, places

    def _wait(self, waiting: waits.Waiting) -> None:
        self.waiting.append(waiting)
        self.log.append(waiting)

    def _hold(self, places: Places, workload: Workload) -> None:
        self.cluster.hold(places, workload)
        self.later.hold(places, workload)

    def _give_back(self, places: Places, workload: Workload) -> None:
        self.cluster.free(places, workload)
        self.later.free(places, workload)

    def _reserve_fair_shares(self) -> None:
        """Keep places for the first of each project that waits long for its fair share beyond the quota."""
        heads = [head for lane in self.lanes.values() if (head := next(filter(self._goes_beyond, lane), None))]
        for workload in sorted(heads, key=lambda item: (item.submitted_at, item.id)):
            if self.ledger.within_fair_share(workload) and self._waited_long(workload):
                reservation = self._reservation(workload)
                if reservation:
                    self._keep(workload, reservation[1])
                    self.soft.add(workload.id)

    def _is_to_be_kept_for(self, workload: Workload) -> bool:
        """Return whether places are kept for a workload that found none, not even by taking others back."""
        has_its_turn = self._made_room_for < MADE_ROOM_FOR and self._kept_for < KEPT_FOR
        return has_its_turn and self._waited_long(workload) and self.ledger.in_quota(workload)

    def _reservation(self, workload: Workload) -> tuple[Workload, Places] | None:
        places = reserve.places(self.later, self.residents, workload, self.gone)
        return (workload, places) if places else None

    def _goes_beyond(self, workload: Workload) -> bool:
        return not self.ledger.in_quota(workload) and self.ledger.may_keep(workload)

    def _waited_long(self, workload: Workload) -> bool:
        return self.now - workload.submitted_at >= self.rules.reserve_after_s * SECOND

    def _find_within(
        self, cluster: Cluster, workload: Workload, full: set[Shape], may: May, *, fresh: bool
    ) -> Places | None:
        """Find places that the project may have; where a slice, which counts whole, is too much, look at GPUs alone."""
        places = self._find(cluster, workload, full, fresh=fresh)
        if places is None or self._may_take(workload, places, may):
            return places
        return self._find(cluster, replace(workload, on_slices=False), full, fresh=fresh)

    def _may_take(self, workload: Workload, places: Places, may: May) -> bool:
        """Return whether the project may have what these places take; remembers what that is where it may not."""
        if not self.cluster.layout.sliced or may(taking(workload, places)):
            return True
        self.too_much[workload.id] = taking(workload, places)
        return False

    def _find(self, cluster: Cluster, workload: Workload, full: set[Shape], *, fresh: bool) -> Places | None:
        """Find places; a shape that found none needs no second look until places are given back."""
        kind = shape(workload)
        if kind in full and not fresh:
            return None
        places = cluster.find(workload)
        if places is None and not fresh:
            full.add(kind)
        return places
