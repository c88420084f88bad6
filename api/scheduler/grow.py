"""Growth: elastic gangs get further containers on places that nobody who waits can use. Nobody is stopped for that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from api.scheduler.capacity import Flags
from api.scheduler.draft import Draft
from api.scheduler.elastic import missing_ranks, one_more, part_id, ranks_of, reachable
from api.scheduler.pending_reasons import PendingWorkload, amount_of
from api.scheduler.signature import Signature, signature_of
from api.scheduler.snapshot import Resource, Running, Workload
from common.sentence import Sentence

MOST = 256
"""So many containers are given at most in one decision; the others have their turn in the next."""

Rank = tuple[int, int, str]
Key = tuple[bool, int, int, int, Rank, str]


@dataclass
class _Gang:
    """A gang that may grow, and the ranks that it may yet have, the lowest first."""

    running: Running
    ranks: list[int]
    nodes: Flags | None = None
    """Those on which a further container meets the others, once somebody has asked for them."""

    @property
    def rank(self) -> Rank:
        """Its place among those of its project."""
        workload = self.running.workload
        return -workload.priority, workload.submitted_at, workload.id


class _Projects:
    """The projects whose gangs may grow: first that with a gang within its quota, then that furthest below its share.

    What is given makes nobody's turn come sooner. So turns are ranked anew only when they come, and only the project
    that was given something, and those of its domain, have another one.
    """

    def __init__(self, draft: Draft, gangs: Iterable[_Gang]) -> None:
        self._ledger = draft.ledger
        self._gangs = {gang.running.workload.id: gang for gang in gangs}
        self._within: defaultdict[str, list[Rank]] = defaultdict(list)
        self._beyond: defaultdict[str, list[Rank]] = defaultdict(list)
        self._ratios: dict[str, int] = {}
        self._of_domains: dict[tuple[str, bool], int] = {}
        for gang in self._gangs.values():
            heappush(self._within[gang.running.workload.project], gang.rank)
        for name in self._within:
            self._look(name)
        self._turns = [self._key(name) for name in self._within]
        heapify(self._turns)

    def next(self) -> _Gang | None:
        """Take the gang whose turn it is."""
        while self._turns:
            key = heappop(self._turns)
            name = key[-1]
            if (current := self._key(name)) == key:
                return self._gangs[heappop(self._beyond[name] if key[0] else self._within[name])[-1]]
            heappush(self._turns, current)
        return None

    def put_back(self, gang: _Gang, *, grown: bool) -> None:
        """Give a gang that has `grown` another turn while it has ranks left, and its project one for the others."""
        name = gang.running.workload.project
        if grown:
            self._look(name)
            if gang.ranks:
                heappush(self._within[name], gang.rank)
        if self._within[name] or self._beyond[name]:
            heappush(self._turns, self._key(name))

    def _look(self, name: str) -> None:
        self._of_domains[self._domain(name)], self._ratios[name] = self._ledger.ratios(name)

    def _domain(self, name: str) -> tuple[str, bool]:
        """Return the project's domain, and that it is one; a project without is its own."""
        domain = self._ledger.domains.of_project.get(name)
        return domain or name, domain is not None

    def _key(self, name: str) -> Key:
        within, beyond = self._within[name], self._beyond[name]
        # what has gone beyond the quota stays so
        while within and not self._ledger.in_quota(one_more(self._gangs[within[0][-1]].running, 0)):
            heappush(beyond, heappop(within))
        first = (within or beyond)[0]
        of_domain, own = self._of_domains[self._domain(name)], self._ratios[name]
        return not within, of_domain, own, self._ledger.had(name), first, name


class _Waiting:
    """The projects of which other work waits that could take room, and those of which only such waits as may not.

    What a project may not have even without the further containers of its gangs would not start if these were fewer;
    once it may, they are given up for it.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._further = {name: _Further.of(draft, name) for name in {item.workload.project for item in draft.waiting}}
        able = [item for item in draft.waiting if item.is_able]
        self._first = {item.workload.project for item in able if not self._is_refused_anyway(item)}
        self._later = {item.workload.project for item in able} - self._first

    def goes_before(self, gang: Running) -> bool:
        """Return whether other work goes before a gang: what may be had later only where the gang could give way."""
        name = gang.workload.project
        return name in self._first or (name in self._later and not self._draft.ran_long_enough(gang))

    def _is_refused_anyway(self, item: PendingWorkload) -> bool:
        """Return whether its project may not have it, whatever its gangs give up of what they can do without."""
        ledger, asked = self._draft.ledger, item.workload
        if item.refused != asked:
            return False  # it may be had, or may on other places
        if not asked.total_milli:
            # its guarantee is what all that runs leaves of a quota, and nobody stops a gang's containers for that
            return ledger.beside.can_never(asked)
        further = self._further[asked.project]
        return (
            not ledger.may_be_fixed(asked)
            or max(ledger.due(asked), ledger.domains.beyond(asked)) > further.milli
            or any(due > further.beside[resource] for resource, due in ledger.beside.due(asked).items())
        )


@dataclass(frozen=True)
class _Further:
    """What the further containers of a project's gangs take."""

    milli: int
    beside: Mapping[Resource, int]

    @classmethod
    def of(cls, draft: Draft, project: str) -> _Further:
        """Return what those take that are not being stopped."""
        found: list[Workload] = []
        if draft.residents.has_extras(project):
            running = draft.residents.of(project)
            found = [each.workload for each in running if each.part_of and each.workload.id not in draft.terminating]
        beside = {resource: sum(each.amount(resource) for each in found) for resource in Resource}
        return cls(sum(each.total_milli for each in found), beside)


def grow(draft: Draft, growing: Iterable[Running]) -> None:
    """Give gangs one container after the other, each time that of the project which is furthest below its share.

    A gang of a project of which other work waits gets none, unless that gains nothing by it: that goes first.
    """
    waiting, gangs = _Waiting(draft), []
    for each in (each for each in growing if _may_grow(draft, each)):
        if waiting.goes_before(each):
            name = each.workload.project
            draft.stay(each, Sentence("other work of {project} waits, and goes first", project=name))
        else:
            gangs.append(_Gang(each, missing_ranks(each)))
    projects = _Projects(draft, gangs)
    room: dict[Signature, Flags] = {}
    given = 0
    while given < MOST and (gang := projects.next()) is not None:
        grown = _grow(draft, gang, room)
        given += grown
        projects.put_back(gang, grown=grown)


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

    `room` says by signature which nodes had any when it was looked last: there is less by now, and never more.
    """
    more = one_more(gang.running, gang.ranks[0])
    if not draft.ledger.may_hold(more):
        # where it may once somebody is gone, that is a matter of seconds
        if not draft.ledger.may_retain(more):
            draft.stay(gang.running, PendingWorkload(more, refused=more, further=True))
        return False
    signature = signature_of(more)
    if signature not in room:
        room[signature] = draft.cluster.fitting(more) > 0
    if not room[signature].any():
        draft.stay(gang.running, PendingWorkload(more, further=True))
        return False
    if gang.nodes is None:
        gang.nodes = _nodes(draft, gang.running)
    nodes = gang.nodes
    places = None
    if (room[signature] & nodes).any():
        places = draft.suiting(more, draft.ledger.may_hold, lambda asked: draft.cluster.find(asked, nodes))
        if places is None:
            # whoever asks for the same is not looked for again
            room[signature] = draft.cluster.fitting(more) > 0
    if places is None:
        draft.stay(gang.running, _why_not(more, draft.too_much.get(more.id), room[signature], nodes))
        return False
    draft.grow(gang.running, gang.ranks.pop(0), more, places)
    return True


def _why_not(more: Workload, too_much: Workload | None, room: Flags, nodes: Flags) -> str | PendingWorkload:
    """Return why a gang gets no further container on the nodes of its reach, where there is no place for it."""
    if too_much or not room.any():
        return PendingWorkload(more, refused=too_much, further=True)
    if not nodes.any():
        return Sentence("a further container could not reach the others")
    return Sentence(
        "none of the nodes that its containers reach has {amount} free; it may get some elsewhere once it was "
        "started again",
        amount=amount_of(more),
    )
