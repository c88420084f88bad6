"""Claims: what is kept for workloads that wait, places or their project's quota alone, in the order of their making.

What a project may still have, who is next and what is fair are told from them by name: see `ledger`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from api.scheduler.snapshot import Placement, Workload

NEVER = 1 << 62


class Standing(Enum):
    """What a claim counts for.

    NOMINATED: its places are free, or are being freed for it; it counts as held wherever that is asked.
    DEFERRED: its project's quota is kept for it, and places where it has some. It counts for the quota alone: where the
    order of projects and their fair shares are told, nobody has it yet.
    SOFT: places for a fair share. It counts for nothing, and guaranteed work may pass over it.
    """

    NOMINATED = auto()
    DEFERRED = auto()
    SOFT = auto()


@dataclass(frozen=True, slots=True)
class Claim:
    """What is kept for a workload.

    Nobody else gets the `places` who would still be there at `free_at`; NEVER where nobody knows when that is. `idle`
    is what of them was free when it was made.
    """

    workload: Workload
    standing: Standing
    places: tuple[Placement, ...] = ()
    free_at: int = 0
    idle: int = 0


class Claims:
    """The claims of one decision, one for each workload, and their sums by project."""

    def __init__(self) -> None:
        self._of: dict[str, Claim] = {}
        self._soft: dict[str, Claim] = {}
        self._milli: Counter[tuple[str, Standing]] = Counter()
        self._fixed: Counter[tuple[str, Standing]] = Counter()

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._of.values())

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
        self._of[claim.workload.id] = claim
        if claim.standing is Standing.SOFT:
            self._soft[claim.workload.id] = claim
        self._count(claim, 1)

    def remove(self, claim: Claim) -> None:
        """Forget it."""
        del self._of[claim.workload.id]
        self._soft.pop(claim.workload.id, None)
        self._count(claim, -1)

    def milli(self, project: str, standing: Standing, but: Workload | None = None, *, fixed: bool = False) -> int:
        """Return what a project's claims come to, or its `fixed` ones, without that of one workload."""
        if not self._of:
            return 0
        total = (self._fixed if fixed else self._milli)[project, standing]
        own = self._of.get(but.id) if but else None
        if own is None or own.standing is not standing or (fixed and own.workload.preemptible):
            return total
        return total - own.workload.total_milli

    def _count(self, claim: Claim, sign: int) -> None:
        workload, key = claim.workload, (claim.workload.project, claim.standing)
        self._milli[key] += sign * workload.total_milli
        if not workload.preemptible:
            self._fixed[key] += sign * workload.total_milli
