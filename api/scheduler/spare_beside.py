"""Spare CPU and memory: who has how much of them for the weight of its project, by which they are shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from api.scheduler.claims import Claims
from api.scheduler.holdings import Amounts
from api.scheduler.snapshot import ProjectState, Resource, Workload

SCALE = 1 << 32


class SpareBeside:
    """What projects have beyond their quotas of CPU and memory during one decision, with GPUs or without."""

    def __init__(
        self, projects: Mapping[str, ProjectState], amounts: Mapping[Resource, Mapping[str, Amounts]], claims: Claims
    ) -> None:
        """Begin with what projects hold: `amounts`, which stay as they are."""
        self._projects, self._amounts, self._claims = projects, amounts, claims
        self._changed: Counter[tuple[Resource, str]] = Counter()
        self._all: dict[Resource, int] = {}

    def part(self, workload: Workload) -> tuple[int, int]:
        """Return how much of what is spare its project has for its weight, of the resource of which that is most.

        Who has no part of what is spare comes after those who do, as it does for GPUs. The parts are those
        of what all projects held when the decision began.
        """
        project = self._projects.get(workload.project)
        weight = project.weight_milli if project else 0
        parts = [
            self._beyond(each, workload) * SCALE // self._total(each) for each in Resource if workload.amount(each)
        ]
        return int(not weight), max(parts, default=0) // max(1, weight)

    def count(self, workload: Workload, sign: int) -> None:
        """Note that a workload starts, or with -1 that it is being stopped."""
        for resource in Resource:
            self._changed[resource, workload.project] += sign * workload.amount(resource)

    def _beyond(self, resource: Resource, workload: Workload) -> int:
        name, project = workload.project, self._projects.get(workload.project)
        bounds, own = project.bounds(resource) if project else None, self._amounts.get(resource, {}).get(name)
        has = (own.retained if own else 0) + self._changed[resource, name]
        has += self._claims.nominated_beside(resource, name, workload)
        return max(0, has - (bounds.quota if bounds else 0))

    def _total(self, resource: Resource) -> int:
        if resource not in self._all:
            self._all[resource] = sum(each.retained for each in self._amounts.get(resource, {}).values()) or 1
        return self._all[resource]
