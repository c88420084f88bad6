"""Ledger of projects: what each holds, and what it may; milli-GPU.

What a project has `held` counts until the last container is gone; what it will have `retained` counts neither those
that are terminating nor those reclaimed, and both count what is nominated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from api.scheduler.snapshot import ProjectState, Running, Workload

NO_SHARE = 1 << 62


@dataclass(slots=True)
class Holdings:
    """What a project has; `fixed` is the part that cannot be reclaimed, `planned` the part that does not run yet."""

    held: int = 0
    retained: int = 0
    planned: int = 0
    fixed_held: int = 0
    fixed_retained: int = 0

    def add(self, workload: Workload, sign: int = 1, *, terminating: bool = False) -> None:
        """Count a workload, or with -1 count it no more; one that is terminating is only held."""
        milli = sign * workload.total_milli
        fixed = 0 if workload.preemptible else milli
        self.held += milli
        self.fixed_held += fixed
        if not terminating:
            self.retained += milli
            self.fixed_retained += fixed

    def plan(self, workload: Workload, sign: int = 1) -> None:
        """Count a workload that is nominated or has a reservation, or with -1 count it no more."""
        self.add(workload, sign)
        self.planned += sign * workload.total_milli

    def terminate(self, workload: Workload) -> None:
        """Note that a workload is being stopped."""
        self.retained -= workload.total_milli
        self.fixed_retained -= 0 if workload.preemptible else workload.total_milli


@dataclass
class Ledger:
    """The projects during one decision, with the fair share of each."""

    projects: Mapping[str, ProjectState]
    holdings: dict[str, Holdings]
    fair: Mapping[str, int]

    @classmethod
    def of(cls, projects: Mapping[str, ProjectState], holdings: Mapping[str, Holdings]) -> Ledger:
        """Return a ledger of its own, which changes neither."""
        return cls(projects, {name: replace(own) for name, own in holdings.items()}, {})

    def project(self, name: str) -> ProjectState:
        """Return the project; one that is no more has no quota and may not go beyond."""
        return self.projects.get(name) or ProjectState(name, 0, over_quota=False)

    def holdings_of(self, name: str) -> Holdings:
        """Return what the project has."""
        return self.holdings.setdefault(name, Holdings())

    def may_hold(self, workload: Workload) -> bool:
        """Return whether the project may have the workload now beside all that it holds."""
        own = self.holdings_of(workload.project)
        return self._may(workload, own.held, own.fixed_held)

    def may_retain(self, workload: Workload) -> bool:
        """Return whether the project may have the workload once those that are terminating are gone."""
        own = self.holdings_of(workload.project)
        return self._may(workload, own.retained, own.fixed_retained)

    def may_be_fixed(self, workload: Workload) -> bool:
        """Return whether the workload keeps the project's work that cannot be reclaimed within its quota."""
        if workload.preemptible or not workload.total_milli:
            return True
        quota = self.project(workload.project).quota_milli
        return self.holdings_of(workload.project).fixed_retained + workload.total_milli <= quota

    def in_quota(self, workload: Workload) -> bool:
        """Return whether the project stays within its guaranteed quota with the workload."""
        return not workload.total_milli or self.after(workload) <= self.project(workload.project).quota_milli

    def within_fair_share(self, workload: Workload) -> bool:
        """Return whether the project stays within its fair share with the workload."""
        return not workload.total_milli or self.after(workload) <= self.fair.get(workload.project, 0)

    def after(self, workload: Workload) -> int:
        """Return what the project has with the workload."""
        return self.holdings_of(workload.project).retained + workload.total_milli

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
        beyond = {name: own.retained - own.planned - lines.get(name, 0) for name, own in others}
        return {name: milli for name, milli in beyond.items() if milli > 0}

    def _may(self, workload: Workload, total: int, fixed: int) -> bool:
        milli = workload.total_milli
        project = self.project(workload.project)
        if not milli:
            return True
        if not project.over_quota and total + milli > project.quota_milli:
            return False
        return workload.preemptible or fixed + milli <= project.quota_milli
