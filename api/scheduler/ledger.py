"""Ledger of projects: what each holds, and what it may; milli-GPU.

What a project has `held` counts until the last container is gone; what it will have `retained` counts neither those
that are terminating nor those reclaimed, and both count what is nominated. What is deferred, or has a reservation,
counts for the quota alone: where the order of projects and their fair shares are told, nobody has it yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from api.scheduler.snapshot import ProjectState, Running, Workload

NO_SHARE = 1 << 62


@dataclass(slots=True)
class Holdings:
    """What a project has; `fixed` is the part that cannot be reclaimed, `nominated` the part that does not run yet.

    `deferred` is what its quota is kept for beside that, and `sizes` how many of its workloads take so much.
    """

    held: int = 0
    retained: int = 0
    nominated: int = 0
    deferred: int = 0
    fixed_held: int = 0
    fixed_retained: int = 0
    fixed_deferred: int = 0
    sizes: Counter[int] = field(default_factory=Counter)

    def add(self, workload: Workload, sign: int = 1, *, terminating: bool = False) -> None:
        """Count a workload, or with -1 count it no more; one that is terminating is only held."""
        milli = sign * workload.total_milli
        fixed = 0 if workload.preemptible else milli
        self.held += milli
        self.fixed_held += fixed
        self.sizes[workload.total_milli] += sign
        if not self.sizes[workload.total_milli]:
            del self.sizes[workload.total_milli]
        if not terminating:
            self.retained += milli
            self.fixed_retained += fixed

    def nominate(self, workload: Workload, sign: int = 1) -> None:
        """Count a workload for which room is being freed, or with -1 count it no more."""
        self.add(workload, sign)
        self.nominated += sign * workload.total_milli

    def defer(self, workload: Workload, sign: int = 1) -> None:
        """Count a workload that the quota is kept for, or with -1 count it no more."""
        self.deferred += sign * workload.total_milli
        self.fixed_deferred += 0 if workload.preemptible else sign * workload.total_milli

    def terminate(self, workload: Workload) -> None:
        """Note that a workload is being stopped."""
        self.retained -= workload.total_milli
        self.fixed_retained -= 0 if workload.preemptible else workload.total_milli


@dataclass
class Ledger:
    """The projects during one decision, with the fair share of each.

    `fair` is what its workloads can take of the `exact` one; that says who is furthest below.
    """

    projects: Mapping[str, ProjectState]
    holdings: dict[str, Holdings]
    exact: Mapping[str, int]
    fair: Mapping[str, int]

    @classmethod
    def of(cls, projects: Mapping[str, ProjectState], holdings: Mapping[str, Holdings]) -> Ledger:
        """Return a ledger of its own, which changes neither."""
        return cls(projects, {name: replace(own, sizes=own.sizes.copy()) for name, own in holdings.items()}, {}, {})

    def project(self, name: str) -> ProjectState:
        """Return the project; one that is no more has no quota and may not go beyond."""
        return self.projects.get(name) or ProjectState(name, 0, over_quota=False)

    def holdings_of(self, name: str) -> Holdings:
        """Return what the project has."""
        return self.holdings.setdefault(name, Holdings())

    def may_hold(self, workload: Workload) -> bool:
        """Return whether the project may have the workload now beside all that it holds."""
        own = self.holdings_of(workload.project)
        return self._may(workload, own.held + own.deferred, own.fixed_held + own.fixed_deferred)

    def may_retain(self, workload: Workload) -> bool:
        """Return whether the project may have the workload once those that are terminating are gone."""
        own = self.holdings_of(workload.project)
        return self._may(workload, own.retained + own.deferred, own.fixed_retained + own.fixed_deferred)

    def may_be_fixed(self, workload: Workload) -> bool:
        """Return whether the workload keeps the project's work that cannot be reclaimed within its quota."""
        if workload.preemptible or not workload.total_milli:
            return True
        project, own = self.project(workload.project), self.holdings_of(workload.project)
        return own.fixed_retained + own.fixed_deferred + workload.total_milli <= project.quota_milli

    def in_quota(self, workload: Workload) -> bool:
        """Return whether the project stays within its guaranteed quota with the workload."""
        return not workload.total_milli or self.after(workload) <= self.project(workload.project).quota_milli

    def within_fair_share(self, workload: Workload) -> bool:
        """Return whether the project stays within its fair share with the workload."""
        after = self.holdings_of(workload.project).retained + workload.total_milli
        return not workload.total_milli or after <= self.fair.get(workload.project, 0)

    def after(self, workload: Workload) -> int:
        """Return what the project takes of its quota with the workload."""
        own = self.holdings_of(workload.project)
        return own.retained + own.deferred + workload.total_milli

    def due(self, workload: Workload) -> int:
        """Return how much the project must give up of its own for the workload, where its quota is a hard cap."""
        project = self.project(workload.project)
        return 0 if project.over_quota else max(0, self.after(workload) - project.quota_milli)

    def over_quota(self, but: str) -> dict[str, int]:
        """Return what the projects have beyond their quota, without the one named."""
        return self._beyond(but, {name: self.project(name).quota_milli for name in self.holdings})

    def over_fair_share(self, but: str) -> dict[str, int]:
        """Return what the projects have beyond their fair share, without the one named."""
        return self._beyond(but, self.fair)

    def reclaim(self, victims: Iterator[Running]) -> None:
        """Note that these are being stopped."""
        for running in victims:
            self.holdings_of(running.workload.project).terminate(running.workload)

    def _beyond(self, but: str, lines: Mapping[str, int]) -> dict[str, int]:
        others = ((name, own) for name, own in self.holdings.items() if name != but)
        beyond = {name: own.retained - own.nominated - lines.get(name, 0) for name, own in others}
        return {name: milli for name, milli in beyond.items() if milli > 0}

    def _may(self, workload: Workload, total: int, fixed: int) -> bool:
        milli = workload.total_milli
        project = self.project(workload.project)
        if not milli:
            return True
        if not project.over_quota and total + milli > project.quota_milli:
            return False
        return workload.preemptible or fixed + milli <= project.quota_milli
