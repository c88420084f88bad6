"""Holdings: what runs of a project, of GPUs or of another resource."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from api.scheduler.snapshot import Workload


@dataclass(slots=True)
class Amounts:
    """What runs of a project; `fixed` is the part that cannot be reclaimed.

    What is `held` counts until the last container is gone, what will be `retained` not those that are terminating.
    """

    held: int = 0
    retained: int = 0
    fixed_held: int = 0
    fixed_retained: int = 0

    def count(self, amount: int, *, preemptible: bool, terminating: bool = False) -> None:
        """Count so much, or with a negative amount no more; a workload that is terminating is only held."""
        fixed = 0 if preemptible else amount
        self.held += amount
        self.fixed_held += fixed
        if not terminating:
            self.retained += amount
            self.fixed_retained += fixed

    def stop(self, amount: int, *, preemptible: bool) -> None:
        """Note that a workload with so much is being stopped."""
        self.retained -= amount
        self.fixed_retained -= 0 if preemptible else amount


@dataclass(slots=True)
class Holdings(Amounts):
    """What runs of a project in milli-GPU; `sizes` is how many take so much."""

    sizes: Counter[int] = field(default_factory=Counter)

    def add(self, workload: Workload, sign: int = 1, *, terminating: bool = False) -> None:
        """Count a workload, or with -1 count it no more; one that is terminating is only held."""
        milli = workload.total_milli
        self.count(sign * milli, preemptible=workload.preemptible, terminating=terminating)
        self.sizes[milli] += sign
        if not self.sizes[milli]:
            del self.sizes[milli]

    def terminate(self, workload: Workload) -> None:
        """Note that a workload is being stopped."""
        self.stop(workload.total_milli, preemptible=workload.preemptible)
