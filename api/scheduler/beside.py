"""Beside GPUs: what projects hold of CPU and memory, and what they may, where they have quotas of these.

Whatever runs counts, with GPUs or without. What is guaranteed is guaranteed to work without GPUs: that of others has
the quota of GPUs for its right, and its CPU and memory come with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from api.scheduler.claims import Claims
from api.scheduler.holdings import Amounts
from api.scheduler.snapshot import NO_CAP, Bounds, ProjectState, Resource, Workload
from api.scheduler.spare_beside import SpareBeside
from api.scheduler.victims import Line

SCALE = 1 << 20
NONE = Amounts()

OfProjects = dict[Resource, dict[str, Amounts]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Of what a project may not have more than `most`; with `fixed` by work that cannot be reclaimed."""

    resource: Resource
    most: int
    fixed: bool


class Beside:
    """CPU and memory of the projects during one decision."""

    def __init__(self, projects: Mapping[str, ProjectState], amounts: OfProjects, claims: Claims) -> None:
        self._projects, self._amounts, self._claims = projects, amounts, claims
        self.counts = bool(amounts)
        self.spare = SpareBeside(projects, {}, claims)
        self._lines: Mapping[str, Line] | None = None

    @classmethod
    def of(
        cls, projects: Mapping[str, ProjectState], amounts: Mapping[Resource, Mapping[str, Amounts]], claims: Claims
    ) -> Beside:
        """Return one of its own, which knows of those projects that have quotas."""
        own: OfProjects = {}
        for resource in Resource:
            held = amounts.get(resource, {})
            of = {each.name: replace(held.get(each.name, NONE)) for each in projects.values() if each.bounds(resource)}
            if of:
                own[resource] = of
        found = cls(projects, own, claims)
        found.spare = SpareBeside(projects, amounts, claims)
        return found

    def refuses(self, workload: Workload, *, now: bool = False) -> Refusal | None:
        """Return what the project may not have of it, or with `now` not beside those that are terminating."""
        if not self.counts:
            return None
        for resource, bounds in self._asked(workload):
            if not workload.preemptible and self.after(resource, workload, now=now, fixed=True) > bounds.quota:
                return Refusal(resource, bounds.quota, fixed=True)
            most = self._projects[workload.project].cap_of(bounds)
            if self.after(resource, workload, now=now) > most:
                return Refusal(resource, most, fixed=False)
        return None

    def can_never(self, workload: Workload) -> bool:
        """Return whether it asks for more than its project may hold, whatever else runs."""
        if not self.counts:
            return False
        for resource, bounds in self._asked(workload):
            most = self._projects[workload.project].cap_of(bounds) if workload.preemptible else bounds.quota
            if workload.amount(resource) > most:
                return True
        return False

    def may_be_fixed(self, workload: Workload) -> bool:
        """Return whether the workload keeps the project's work that cannot be reclaimed within its quotas."""
        return workload.preemptible or all(
            self.after(resource, workload, fixed=True) <= bounds.quota for resource, bounds in self._asked(workload)
        )

    def in_quota(self, workload: Workload) -> bool:
        """Return whether the project stays with the workload within those quotas that it has."""
        return all(self.after(resource, workload) <= bounds.quota for resource, bounds in self._asked(workload))

    def is_guaranteed(self, workload: Workload) -> bool:
        """Return whether work without GPUs is within a quota that its project has."""
        return any(self._asked(workload)) and self.in_quota(workload)

    def exceeded(self, workload: Workload) -> Resource | None:
        """Return a resource of which the project goes beyond its quota with the workload."""
        beyond = (item for item, bounds in self._asked(workload) if self.after(item, workload) > bounds.quota)
        return next(beyond, None)

    def due(self, workload: Workload) -> Mapping[Resource, int]:
        """Return how much the project must give up of its own for the workload, where it has caps."""
        if not self.counts:
            return {}
        found = {}
        for resource, bounds in self._asked(workload):
            most = self._projects[workload.project].cap_of(bounds)
            if most < NO_CAP and (beyond := self.after(resource, workload) - most) > 0:
                found[resource] = beyond
        return found

    def due_within_quota(self, workload: Workload) -> Mapping[Resource, int] | None:
        """Return how much the project must give up of its own so that work without GPUs is within its quotas.

        None where that could never be, or it has none.
        """
        asked = list(self._asked(workload))
        if not asked or any(workload.amount(resource) > bounds.quota for resource, bounds in asked):
            return None
        beyond = {resource: self.after(resource, workload) - bounds.quota for resource, bounds in asked}
        return {resource: amount for resource, amount in beyond.items() if amount > 0}

    def lines(self) -> Mapping[str, Line]:
        """Return what each project that has quotas has beyond them; who is not named has none, and no right."""
        if self._lines is None:
            self._lines = self._find_lines()
        return self._lines

    def _find_lines(self) -> Mapping[str, Line]:
        found: dict[str, Line] = {}
        for name in {name for of in self._amounts.values() for name in of}:
            project = self._projects[name]
            given = {each: bounds for each in Resource if (bounds := project.bounds(each))}
            beyond = {each: self.retained(each, name) - bounds.quota for each, bounds in given.items()}
            worst = max(given, key=lambda each: beyond[each] * SCALE // max(1, given[each].quota))
            found[name] = Line(tuple(given), worst, max(0, beyond[worst]))
        return found

    def after(self, resource: Resource, workload: Workload, *, now: bool = False, fixed: bool = False) -> int:
        """Return what the project has of a resource with the workload, or with `fixed` what of it stays so."""
        own = self._amounts[resource][workload.project]
        running = (own.fixed_held if fixed else own.held) if now else own.fixed_retained if fixed else own.retained
        return running + self.nominated(resource, workload.project, workload, fixed=fixed) + workload.amount(resource)

    def retained(self, resource: Resource, name: str, *, fixed: bool = False) -> int:
        """Return what of a project runs and is not being stopped."""
        own = self._amounts[resource][name]
        return own.fixed_retained if fixed else own.retained

    def nominated(self, resource: Resource, name: str, but: Workload | None = None, *, fixed: bool = False) -> int:
        """Return what a project is about to have."""
        return self._claims.nominated_beside(resource, name, but, fixed=fixed)

    def quota(self, resource: Resource, name: str) -> int:
        """Return the quota of a project that has one."""
        bounds = self._projects[name].bounds(resource)
        return bounds.quota if bounds else 0

    def place(self, workload: Workload) -> None:
        """Note that a workload starts."""
        self._lines = None
        self.spare.count(workload, 1)
        for resource, of in self._amounts.items():
            if workload.project in of:
                of[workload.project].count(workload.amount(resource), preemptible=workload.preemptible)

    def terminate(self, workload: Workload) -> None:
        """Note that a workload is being stopped."""
        self._lines = None
        self.spare.count(workload, -1)
        for resource, of in self._amounts.items():
            if workload.project in of:
                of[workload.project].stop(workload.amount(resource), preemptible=workload.preemptible)

    def _asked(self, workload: Workload) -> Iterator[tuple[Resource, Bounds]]:
        """Yield what the workload asks for of which its project has a quota."""
        for resource, of in self._amounts.items():
            if workload.project in of and workload.amount(resource):
                bounds = self._projects[workload.project].bounds(resource)
                if bounds:
                    yield resource, bounds
