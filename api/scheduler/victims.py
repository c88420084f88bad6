"""Victims: which running workloads may be reclaimed for a waiting one, and how many of them together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from api.scheduler.snapshot import Running, Workload

Rank = tuple[int, int, tuple[tuple[int, int, str], ...]]
"""How much a set of victims costs, the lower the better: milli-GPU, how many they are, and who they are."""


def order(running: Running) -> tuple[int, int, str]:
    """Rank victims that cost the same: the lowest priority first, then the youngest."""
    return running.workload.priority, -running.since, running.workload.id


def rank(victims: Collection[Running]) -> Rank:
    """Return what it costs to reclaim all of them; of equal sets the one that spares the higher and the older."""
    total = sum(running.workload.total_milli for running in victims)
    return total, len(victims), tuple(sorted(map(order, victims), reverse=True))


@dataclass(frozen=True)
class VictimPool:
    """Those who may be reclaimed.

    `surplus` is what may be taken of each project. With `last_may_pass` the last victim of a project may take it below
    that line; without, none may. Of `own`, workloads of a priority below `below` may be taken whatever it holds, unless
    they need no more than `spared`, and `due` milli-GPU of them have to be. `until` is the latest start of one that ran
    long enough; `taken` terminate already. With `everyone`, whoever runs counts, to tell which places become free
    soonest; with `soon_only` only who can be reclaimed or whose end is known.
    """

    surplus: Mapping[str, int] = field(default_factory=dict)
    last_may_pass: bool = False
    own: str = ""
    below: int = 0
    spared: int = -1
    due: int = 0
    until: int = 0
    taken: Collection[str] = frozenset()
    everyone: bool = False
    soon_only: bool = True

    @property
    def projects(self) -> Sequence[str] | None:
        """The projects that it concerns; None is every one."""
        return None if self.everyone else [*self.surplus, *([self.own] if self.own else [])]

    def has(self, running: Running) -> bool:
        """Return whether this one may be taken at all."""
        workload = running.workload
        if workload.id in self.taken:
            return False
        if self.everyone:
            return workload.preemptible or running.ends_at > 0 or not self.soon_only
        return workload.preemptible and running.since <= self.until and self._concerns(workload)

    def _concerns(self, workload: Workload) -> bool:
        if workload.project == self.own:
            return workload.priority < self.below and workload.total_milli > self.spared
        surplus = self.surplus.get(workload.project, 0)
        return surplus > 0 and (self.last_may_pass or workload.total_milli <= surplus)

    def owed(self, victims: Collection[Running]) -> int:
        """Return how much of its own the project still has to give up beside these."""
        if self.due <= 0:
            return 0
        given = sum(running.workload.total_milli for running in victims if running.workload.project == self.own)
        return max(0, self.due - given)
