"""Draft of a decision: what is known of the cluster and its projects, and what has been decided so far.

Actions (`allocate`, `reclaim`, `consolidate`) look and leave a draft as it was; what they propose is a `Statement`, and
nothing of it is so before it is committed.

Places that are kept for somebody are allocated beside those who are still there: more is then held than there is, and
nobody else gets them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from api.scheduler import decision_lines, elastic, pending_reasons, stop_reasons
from api.scheduler.capacity import Ints
from api.scheduler.claims import NEVER, SECOND, Claim, Standing
from api.scheduler.cluster import ClusterState
from api.scheduler.feasibility import Feasibility, OpenNodes
from api.scheduler.holdings import Amounts, Holdings
from api.scheduler.ledger import Ledger
from api.scheduler.networks import NetworksLeft
from api.scheduler.pending_reasons import PendingWorkload
from api.scheduler.residents import Residents
from api.scheduler.rights import Right
from api.scheduler.shortage import lacking
from api.scheduler.signature import Frontier
from api.scheduler.snapshot import (
    Decision,
    DomainState,
    Networks,
    Placement,
    ProjectState,
    Reclaim,
    Resource,
    Running,
    SchedulerSettings,
    Workload,
    taking,
)
from api.scheduler.topology import allowed
from api.scheduler.turns import Turns

HOUR = 3600 * SECOND

Places = tuple[Placement, ...]
May = Callable[[Workload], bool]
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
    beside: Mapping[Resource, Mapping[str, Amounts]]
    terminating: Mapping[str, Running]
    capacity: int
    feasibility: Feasibility
    open_nodes: OpenNodes
    growing: Mapping[str, Running] = field(default_factory=dict)
    domains: Mapping[str, DomainState] = field(default_factory=dict)
    networks: Networks | None = None


@dataclass(frozen=True)
class Before:
    """What the decision before kept: places by workload, for whom of these others were stopped, who was left out."""

    reservations: Mapping[str, Places]
    nominated: frozenset[str]
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Statement:
    """What is proposed for a workload: its places, and who has to leave them.

    Without `terminating` it starts now. Else it is nominated, and that names those who still hold the places. `moved`
    says where the victims go instead, `right` by what they have to leave.
    """

    workload: Workload
    places: Places
    victims: tuple[Running, ...] = ()
    terminating: str = ""
    moved: Mapping[str, Places] = field(default_factory=dict)
    right: Right = Right.PRIORITY


class Draft:
    """A decision as it comes about."""

    def __init__(
        self, state: PlannerState, now: int, settings: SchedulerSettings, left_out: Collection[str] = ()
    ) -> None:
        self.cluster, self.later, self.residents = state.now, state.later, state.residents
        self.capacity = state.capacity
        self.open_nodes = state.open_nodes
        self.now, self.settings = now, settings
        self.ledger = Ledger.of(state.projects, state.holdings, now, state.beside, state.domains)
        self.claims = self.ledger.claims
        self.terminating = dict(state.terminating)
        self.least = settings.least_runtime_s(None) * SECOND
        own = [each for each in state.projects.values() if each.min_runtime_s is not None]
        self.least_of = {each.name: settings.least_runtime_s(each) * SECOND for each in own}
        self.turns = Turns(left_out)
        self.networks = NetworksLeft(state.networks)
        self.too_much: dict[str, Workload] = {}
        self.waiting: list[PendingWorkload] = []
        self.moved_lately = 0
        self._being_freed: Ints | None = None
        self._passed_over: list[Claim] = []
        self._placed: dict[str, Places] = {}
        self._reach: dict[str, tuple[str, ...]] = {}
        self._grown: defaultdict[str, dict[int, Placement]] = defaultdict(dict)
        self._not_grown: dict[str, str | PendingWorkload] = {}
        self._reclaims: list[Reclaim] = []
        self._beneficiaries: set[str] = set()
        self._log: list[str | PendingWorkload] = []

    @property
    def moves(self) -> int:
        """How many are moved by this decision."""
        return sum(reclaim.moved for reclaim in self._reclaims)

    @property
    def beneficiaries(self) -> int:
        """For how many workloads others are reclaimed."""
        return len(self._beneficiaries)

    def note_moves(self, others: Iterable[Workload]) -> None:
        """Count who was moved within an hour: those that stay, and `others` that wait or are being stopped."""
        since = self.now - HOUR
        self.moved_lately = self.residents.moved_since(since) + sum(each.moved_at > since for each in others)

    def is_being_freed(self, workload: Workload) -> bool:
        """Return whether anybody is being stopped on the nodes that the workload may use."""
        if self._being_freed is None:
            rows = self.cluster.layout.rows
            on = {place.node for each in self.terminating.values() for place in each.placements}
            self._being_freed = np.array([rows[name] for name in sorted(on) if name in rows], dtype=np.int64)
        return bool(allowed(self.cluster.layout, workload)[self._being_freed].any())

    def waited_long(self, workload: Workload) -> bool:
        """Return whether places may be reserved for it."""
        return self._waited(workload, self.settings.reserve_after_s) and not self.lacks_network(workload)

    def waited_too_long(self, workload: Workload) -> bool:
        """Return whether its project's quota is kept for it, however long what runs may stay."""
        return self._waited(workload, self.settings.strict_order_after_s)

    def ran_long_enough(self, running: Running) -> bool:
        """Return whether it may be reclaimed by now."""
        # a clock that was set back leaves starts to come: to wait for these could take for ever
        return abs(self.now - running.since) >= self.least_of.get(running.workload.project, self.least)

    def lacks_network(self, workload: Workload) -> str:
        """Return why there is no network for a workload that needs one, or nothing."""
        if not (workload.needs_network and self.networks.are_few):
            return ""
        return self.networks.lacking(workload, self.network_rank(workload))

    def network_rank(self, workload: Workload) -> int:
        """Rank who has GPUs guaranteed before who has CPU and memory guaranteed, before others."""
        if workload.total_milli:
            return 0 if self.ledger.in_quota(workload) else 2
        return 1 if self.ledger.beside.is_guaranteed(workload) else 2

    def keep(self, claim: Claim) -> None:
        """Keep for a workload what a claim says."""
        self.claims.add(claim)
        if claim.workload.id not in self.terminating:  # who is stopped has a network still
            self._keep_network(claim)
        self._allocate(claim.places, claim.workload)

    def release(self, claim: Claim) -> None:
        """Keep it no more."""
        self.claims.remove(claim)
        self.networks.release(claim.workload)
        self._release(claim.places, claim.workload)

    @contextmanager
    def without(self, claims: Iterable[Claim]) -> Iterator[None]:
        """Look at the cluster as if these places were not kept; that may lie in another such look."""
        passed_over = [claim for claim in claims if claim not in self._passed_over]
        self._passed_over += passed_over
        with self.cluster.trial(), self.later.trial():
            for claim in passed_over:
                self._release(claim.places, claim.workload)
            yield
        del self._passed_over[len(self._passed_over) - len(passed_over) :]

    @contextmanager
    def once_gone(self, victims: Iterable[Running]) -> Iterator[None]:
        """Look at what is free later as if these were gone."""
        with self.later.trial():
            for running in victims:
                self.later.release(running.placements, running.workload)
            yield

    def commit(self, statement: Statement) -> None:
        """Make a statement part of the decision."""
        workload, places = statement.workload, statement.places
        claim = self.claims.of(workload)
        if claim:
            self.release(claim)
        for running in _together(statement.victims):
            self._reclaim(running, statement)
        self._being_freed = None
        for running in statement.victims:
            self.terminating[running.workload.id] = running
            self.later.release(running.placements, running.workload)
        self.ledger.reclaim(statement.victims)
        if not statement.terminating:
            self._place(workload, places)
            return
        stopped_for = bool(statement.victims) or (claim is not None and claim.stopped_for)
        self.keep(Claim(workload, Standing.NOMINATED, places, stopped_for=stopped_for))
        for running in statement.victims:
            elsewhere = statement.moved.get(running.workload.id)
            if elsewhere is not None:
                self.keep(Claim(running.workload, Standing.NOMINATED, elsewhere, stopped_for=True))
        self.wait(PendingWorkload(workload, terminating=statement.terminating))

    def grow(self, running: Running, rank: int, more: Workload, places: Places) -> None:
        """Give an elastic workload that runs one container more, of this rank."""
        self._grown[running.workload.id][rank] = places[0]
        self._allocate(places, more)
        self.ledger.place(taking(more, places))
        self._log.append(decision_lines.grown(self.ledger, running.workload, rank, places[0].node))

    def stay(self, running: Running, why: str | PendingWorkload) -> None:
        """Let an elastic workload that runs have no further container: in words, or by what could not be had."""
        self._not_grown[running.workload.id] = why

    def wait(self, waiting: PendingWorkload) -> None:
        """Let a workload wait."""
        self.waiting.append(waiting)
        self._log.append(waiting)

    def wait_no_more(self, waiting: PendingWorkload) -> None:
        """Let one that waits be served again."""
        self.waiting.remove(waiting)
        self._log.remove(waiting)

    def find(self, cluster: ClusterState, workload: Workload, full: Frontier, may: May) -> Places | None:
        """Find places that the project may have, unless the like of it found none."""
        return self.suiting(workload, may, lambda asked: _find(cluster, asked, full))

    def suiting(self, workload: Workload, may: May, find: Callable[[Workload], Places | None]) -> Places | None:
        """Find places that the project may have; where a slice, which counts whole, is too much, look at GPUs alone."""
        places = find(workload)
        if places is None or self.may_take(workload, places, may):
            return places
        return find(replace(workload, on_slices=False))

    def could_have(self, workload: Workload) -> bool:
        """Return whether it would have places if nothing else ran, and its project may ever hold what it takes there.

        What runs may end, and nodes that are closed stay closed.
        """
        could = self.open_nodes.could_take(workload)
        return could and self.open_nodes.least_milli(workload) <= self.ledger.project(workload.project).cap_milli

    def may_take(self, workload: Workload, places: Places, may: May) -> bool:
        """Return whether the project may have what these places take; remembers what that is where it may not.

        Who asks has seen that it may have what the workload asks for: more than that is taken by slices alone.
        """
        taken = taking(workload, places)
        if taken.total_milli == workload.total_milli or may(taken):
            return True
        self.too_much[workload.id] = taken
        return False

    def decision(self) -> Decision:
        """Return what was decided."""
        kept = self.claims.with_places()
        stays = {id_: why for id_, why in self._not_grown.items() if isinstance(why, PendingWorkload)}
        explained = pending_reasons.explain(self.cluster, self.ledger, [*self.waiting, *stays.values()], kept)
        said = {id_: why for id_, why in self._not_grown.items() if isinstance(why, str)}
        not_grown = said | {id_: explained.pop(each.workload.id).reason for id_, each in stays.items()}
        lines = (item if isinstance(item, str) else decision_lines.waits(item, explained) for item in self._log)
        reserved = {claim.workload.id: claim.places for claim in kept}
        nominated = tuple(claim.workload.id for claim in kept if claim.stopped_for)
        return Decision(
            self._placed,
            tuple(self._reclaims),
            explained,
            tuple(lines),
            dict(self._grown),
            self._reach,
            reserved,
            nominated,
            self.turns.left_out,
            not_grown,
        )

    def _keep_network(self, claim: Claim) -> None:
        """Keep a network for a gang that has places kept.

        Who waits for a fair share, for the quota, or for work whose end nobody knows needs none yet: others take it,
        and that gang lets go of its places. So that it does not starve, it is kept for the first that waits too long.
        """
        workload, is_soft = claim.workload, claim.standing is Standing.SOFT
        if claim.places and not is_soft and claim.free_at < NEVER:
            self.networks.keep(workload)
        elif self.waited_too_long(workload):
            self.networks.keep_ahead(workload, self.network_rank(workload) if is_soft else 0)

    def _waited(self, workload: Workload, seconds: int) -> bool:
        return self.now - workload.waiting_since >= seconds * SECOND

    def _place(self, workload: Workload, places: Places) -> None:
        self._placed[workload.id] = places
        self.networks.keep(workload)
        if workload.is_elastic:
            free = self.cluster.state.milli.clip(0).sum(axis=1)
            self._reach[workload.id] = elastic.reach(self.cluster.layout, free, workload, places)
        self._allocate(places, workload)
        self.ledger.place(taking(workload, places))
        self._log.append(decision_lines.placed(self.ledger, workload, places))

    def _reclaim(self, running: Running, statement: Statement) -> None:
        victim, beneficiary = running.workload, statement.workload
        elsewhere = statement.moved.get(victim.id, ())
        if elsewhere:
            reason = stop_reasons.moved(victim, beneficiary, elsewhere)
        elif running.part_of and victim.project == beneficiary.project:
            reason = stop_reasons.shrunk(victim, beneficiary)
        else:
            reason = stop_reasons.reclaimed(self.ledger, victim, beneficiary, statement.right)
        self._beneficiaries.add(beneficiary.id)
        self._reclaims.append(
            Reclaim(
                running.part_of or victim.id,
                beneficiary.id,
                reason,
                moved=bool(elsewhere),
                ranks=running.ranks if running.part_of else (),
            )
        )
        self._log.append(decision_lines.stopped(running, beneficiary, reason, moved=bool(elsewhere)))

    def _allocate(self, places: Sequence[Placement], workload: Workload) -> None:
        self.cluster.allocate(places, workload)
        self.later.allocate(places, workload)

    def _release(self, places: Sequence[Placement], workload: Workload) -> None:
        self.cluster.release(places, workload)
        self.later.release(places, workload)


def _find(cluster: ClusterState, workload: Workload, full: Frontier) -> Places | None:
    """Find places; what asks for no less than one that found none needs no second look until places are given back."""
    if workload in full:
        return None
    places = cluster.find(workload)
    if places is None:
        full.add(lacking(cluster.layout, cluster.state, workload))
    return places


def _together(victims: Iterable[Running]) -> Iterator[Running]:
    """Yield who is stopped: what goes of a gang as one, and none of its containers alone where all of it goes."""
    whole = {running.workload.id for running in victims}
    shrunk: dict[str, Running] = {}
    for running in victims:
        if not running.part_of:
            yield running
        elif running.part_of not in whole:
            same = shrunk.get(running.part_of)
            ranks = tuple(sorted((*(same.ranks if same else ()), *running.ranks)))
            shrunk[running.part_of] = replace(running, ranks=ranks)
    yield from shrunk.values()
