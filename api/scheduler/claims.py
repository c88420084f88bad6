"""Claims: what is kept for workloads that wait, places or their project's quota alone, in the order of their making.

What a project may still have, who is next and what is fair are told from them by name: see `ledger`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from api.scheduler.snapshot import Placement, Resource, Workload, taking

NEVER = 1 << 62
SECOND = 1_000_000


class Standing(Enum):
    """What a claim counts for.

    NOMINATED: its places are free, or are being freed for it; it counts as held wherever that is asked.
    DEFERRED: its project's quota is kept for it, and places where it has some. It counts for the quota alone: where the
    order of projects and their fair shares are told, nobody has it yet.
    SOFT: places for a fair share, or without a GPU. It counts for nothing, who has GPUs guaranteed may pass over it.
    """

    NOMINATED = auto()
    DEFERRED = auto()
    SOFT = auto()


@dataclass(frozen=True, slots=True)
class Claim:
    """What is kept for a workload.

    Nobody else gets the `places`, or the quota alone, who would still be there at `free_at`; NEVER where nobody knows
    when that is, and then `stays` says that somebody is there who cannot be stopped for it either. `idle` is what of
    the places was free when it was made. Of its project's work so much will have ended by then: `leaving` in all,
    `leaving_fixed` of what cannot be reclaimed. `leaving_cap` is what has to have ended until there is room for it
    below the project's cap, which may be above the quota. With `stopped_for` others were stopped for it, or it was
    moved itself: that must not have been in vain.
    """

    workload: Workload
    standing: Standing
    places: tuple[Placement, ...] = ()
    free_at: int = 0
    idle: int = 0
    stays: bool = False
    leaving: int = 0
    leaving_fixed: int = 0
    leaving_cap: int = 0
    stopped_for: bool = False

    @property
    def taking(self) -> Workload:
        """The workload as it will be on its places: of a slice it takes all."""
        return taking(self.workload, self.places) if self.places else self.workload

    def kept(self, *, fixed: bool = False) -> int:
        """Return what of its project's quota is kept beside what runs, or of that for what cannot be reclaimed."""
        if fixed and self.workload.preemptible:
            return 0
        return max(0, self.taking.total_milli - (self.leaving_fixed if fixed else self.leaving))

    def kept_of_cap(self) -> int:
        """Return what of the most that its project may hold is kept beside what runs."""
        return max(0, self.taking.total_milli - self.leaving_cap)

    def delayed_by(self, workload: Workload, now: int) -> bool:
        """Return whether another one of its project would still be there."""
        ends_at = now + workload.limit_s * SECOND if workload.limit_s else NEVER
        return bool(self.places) or ends_at > self.left_until(now)

    def left_until(self, now: int) -> int:
        """Return until when others may have what is kept: until it is free, as far as that is known.

        Behind who can neither be stopped for it nor is known to end, for as long as the workload has waited: if that
        one ends at once, it waits twice as long at most.
        """
        if self.free_at < NEVER:
            return self.free_at
        return 2 * now - self.workload.waiting_since if self.stays else 0


class Claims:
    """The claims of one decision, and what they come to by project: one for each workload.

    Beside a soft one there may be one that keeps the quota alone; both go together.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self._of: dict[str, Claim] = {}
        self._soft: dict[str, Claim] = {}
        self._deferred: defaultdict[str, dict[str, Claim]] = defaultdict(dict)
        self._nominated: Counter[str] = Counter()
        self._nominated_fixed: Counter[str] = Counter()
        self._beside: Counter[tuple[str, Resource]] = Counter()
        self._beside_fixed: Counter[tuple[str, Resource]] = Counter()

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._of.values())

    def every(self) -> tuple[Claim, ...]:
        """Return all of them, those too that keep the quota alone beside a soft one."""
        quotas = [
            claim for of in self._deferred.values() for id_, claim in of.items() if self._of.get(id_) is not claim
        ]
        return (*self._of.values(), *quotas)

    def of(self, workload: Workload) -> Claim | None:
        """Return what is kept for the workload."""
        return self._of.get(workload.id)

    def with_places(self) -> list[Claim]:
        """Return those that keep places."""
        return [claim for claim in self if claim.places]

    def soft(self) -> list[Claim]:
        """Return those that guaranteed work may pass over."""
        return list(self._soft.values())

    def add(self, claim: Claim) -> None:
        """Note a claim."""
        if claim.places or claim.workload.id not in self._of:
            self._of[claim.workload.id] = claim
        if claim.standing is Standing.SOFT:
            self._soft[claim.workload.id] = claim
        if claim.standing is Standing.DEFERRED:
            self._deferred[claim.workload.project][claim.workload.id] = claim
        self._count(claim, 1)

    def remove(self, claim: Claim) -> None:
        """Forget it."""
        del self._of[claim.workload.id]
        self._soft.pop(claim.workload.id, None)
        self._deferred[claim.workload.project].pop(claim.workload.id, None)
        self._count(claim, -1)

    def deferred(self, project: str, but: Workload | None = None) -> list[Claim]:
        """Return those for which the project's quota is kept, without that of one workload and those it delays not."""
        if project not in self._deferred:
            return []
        claims = self._deferred[project].values()
        return [each for each in claims if not but or (each.workload.id != but.id and each.delayed_by(but, self._now))]

    def is_deferred(self, workload: Workload) -> bool:
        """Return whether its project's quota is kept for the workload."""
        return workload.id in self._deferred[workload.project]

    def nominated(self, project: str, but: Workload | None = None, *, fixed: bool = False) -> int:
        """Return what those come to who are about to start, or the `fixed` ones, without one workload."""
        if not self._of:
            return 0
        total = (self._nominated_fixed if fixed else self._nominated)[project]
        own = self._counted(project, but, fixed=fixed)
        return total - own.total_milli if own else total

    def nominated_beside(
        self, resource: Resource, project: str, but: Workload | None = None, *, fixed: bool = False
    ) -> int:
        """Return the same of a resource beside GPUs."""
        total = (self._beside_fixed if fixed else self._beside)[project, resource]
        own = self._counted(project, but, fixed=fixed)
        return total - own.amount(resource) if own else total

    def _counted(self, project: str, workload: Workload | None, *, fixed: bool) -> Workload | None:
        """Return the workload as it counts among those of the project about to start, or the `fixed` ones, if any."""
        own = self._of.get(workload.id) if workload and workload.project == project else None
        if own is None or own.standing is not Standing.NOMINATED or (fixed and own.workload.preemptible):
            return None
        return own.taking

    def _count(self, claim: Claim, sign: int) -> None:
        if claim.standing is not Standing.NOMINATED:
            return
        workload = claim.taking
        self._nominated[workload.project] += sign * workload.total_milli
        if not workload.preemptible:
            self._nominated_fixed[workload.project] += sign * workload.total_milli
        for resource in Resource:
            amount = sign * workload.amount(resource)
            self._beside[workload.project, resource] += amount
            if not workload.preemptible:
                self._beside_fixed[workload.project, resource] += amount
