"""Who runs where: found by node and by project, so that a decision looks only at those whom it may concern."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from api.scheduler.snapshot import Running


class Residents:
    """The workloads that run and are not being stopped."""

    def __init__(self) -> None:
        self._on: defaultdict[str, dict[str, Running]] = defaultdict(dict)
        self._nodes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._priorities: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def add(self, running: Running) -> None:
        """Note where it runs."""
        for node in {placement.node for placement in running.placements}:
            self._on[node][running.workload.id] = running
            self._nodes[running.workload.project][node] += 1
        if running.workload.preemptible:
            self._priorities[running.workload.project][running.workload.priority] += 1

    def remove(self, running: Running) -> None:
        """Forget it; the exact inverse of `add`."""
        nodes = self._nodes[running.workload.project]
        for node in {placement.node for placement in running.placements}:
            del self._on[node][running.workload.id]
            nodes[node] -= 1
            if not nodes[node]:
                del nodes[node]
        if running.workload.preemptible:
            priorities = self._priorities[running.workload.project]
            priorities[running.workload.priority] -= 1
            if not priorities[running.workload.priority]:
                del priorities[running.workload.priority]

    def on(self, node: str) -> Iterable[Running]:
        """Return those that have a container on the node."""
        return self._on[node].values() if node in self._on else ()

    def nodes_of(self, projects: Iterable[str] | None) -> set[str]:
        """Return the nodes where any of the projects has a container; of every project where None is named."""
        names = self._nodes if projects is None else [name for name in projects if name in self._nodes]
        return set().union(*(self._nodes[name] for name in names))

    def has_below(self, project: str, priority: int) -> bool:
        """Return whether a preemptible workload of the project has a lower priority."""
        return project in self._priorities and any(each < priority for each in self._priorities[project])
