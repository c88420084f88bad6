"""Order: in which order the queues of projects are served, in each of which the order is that of its workloads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from api.scheduler.claims import Standing
from api.scheduler.draft import Draft
from api.scheduler.reserve import quota_alone
from api.scheduler.snapshot import Workload

Key = tuple[int, int, int, int, int, str]


class Order:
    """The order in which one decision serves who waits; it follows what is decided meanwhile."""

    def __init__(self, draft: Draft, queues: Mapping[str, Sequence[Workload]], *, guarantees_fit: bool) -> None:
        """Begin; `guarantees_fit` says whether there is enough for all of them."""
        self._draft, self._ledger, self._claims = draft, draft.ledger, draft.ledger.claims
        self._queues, self._guarantees_fit = queues, guarantees_fit

    def of(self, nominated: Sequence[Workload], beyond_quota: Collection[str]) -> Iterator[Workload]:
        """Yield the queues: what is nominated, then what is guaranteed, then what is fair, then the rest.

        What of that is `beyond_quota` comes after the guarantees, which would stop it as soon as it had begun.
        The first of a project do not hide others of a better right: those would reclaim in the next decision what the
        rest of another project got in this one.
        """
        by_age = sorted(nominated, key=lambda item: (item.submitted_at, item.id))
        yield from (workload for workload in by_age if workload.id not in beyond_quota)
        beyond: dict[str, list[Workload]] = defaultdict(list)
        rest: dict[str, list[Workload]] = defaultdict(list)
        yield from self._by_share({name: self._guaranteed(queue, beyond[name]) for name, queue in self._queues.items()})
        yield from (workload for workload in by_age if workload.id in beyond_quota)
        yield from self._by_share({name: self._fair(queue, rest[name]) for name, queue in beyond.items()})
        yield from self._by_share({name: iter(queue) for name, queue in rest.items()})

    def _guaranteed(self, queue: Sequence[Workload], rest: list[Workload]) -> Iterator[Workload]:
        """Yield what is within the quota when its turn comes; the rest comes after.

        For the first that can be within the quota in time and waits for long the quota is kept: it does not starve
        behind others, which may have what it leaves.
        """
        for workload in queue:
            if self._ledger.is_guaranteed(workload):
                yield workload
                continue
            rest.append(workload)
            if (
                workload.total_milli
                and not self._ledger.beside.refuses(workload)
                and self._is_first(workload)
                and self._draft.waited_long(workload)
                and (claim := quota_alone(self._draft, workload))
            ):
                self._draft.keep(claim)

    def _fair(self, queue: Sequence[Workload], rest: list[Workload]) -> Iterator[Workload]:
        """Yield what is within the fair share when its turn comes; the rest comes after."""
        for workload in queue:
            if self._ledger.within_fair_share(workload):
                yield workload
            else:
                rest.append(workload)

    def _is_first(self, workload: Workload) -> bool:
        """Return whether nothing of the quota is kept yet, or of the limit where it asks for more than the quota."""
        claim, quota = self._claims.of(workload), self._ledger.project(workload.project).quota_milli
        if claim and claim.standing is not Standing.SOFT:
            return False
        others = [each.workload.total_milli for each in self._claims.deferred(workload.project)]
        return not [milli for milli in others if workload.total_milli > quota or milli <= quota]

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
        """Rank a workload: guaranteed before fair before the rest, then by how little of their shares they have.

        That is the domain, if it is in one that shares, then the project; of equal ones who had the least lately goes
        first. Guarantees are served in the order of submission as long as there is enough for all of them.
        """
        in_quota = self._ledger.is_guaranteed(workload)
        if not (in_quota or workload.total_milli):
            part = self._ledger.beside.spare.part(workload) if self._ledger.beside.counts else (0, 0)
            return 2, 0, *part, workload.submitted_at, workload.id
        if in_quota and (self._guarantees_fit or self._draft.waited_long(workload)):
            return 0 if self._draft.waited_long(workload) else 1, 0, 0, 0, workload.waiting_since, workload.id
        tier = 1 if in_quota else 2 if self._ledger.within_fair_share(workload) else 3
        had = self._ledger.had(workload.project)
        return tier, *self._ledger.ratios(workload.project, workload), had, workload.submitted_at, workload.id
