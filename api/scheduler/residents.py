"""Running workloads by node and by project, so that a decision looks only at those whom it may concern."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from api.scheduler.capacity import Flags, Ints, Layout
from api.scheduler.snapshot import Running
from api.scheduler.victims import VictimPool

FEWEST = 1024
NOBODY = -1
NO_LIMIT = 1 << 62


class Residents:
    """The workloads that run and are not being stopped."""

    def __init__(self) -> None:
        self._on: defaultdict[str, dict[str, Running]] = defaultdict(dict)
        self._nodes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._priorities: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._table = _Table()

    def add(self, running: Running) -> None:
        """Note where it runs."""
        for node in {placement.node for placement in running.placements}:
            self._on[node][running.workload.id] = running
            self._nodes[running.workload.project][node] += 1
        if running.workload.preemptible:
            self._priorities[running.workload.project][running.workload.priority] += 1
        self._table.add(running)

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
        self._table.remove(running)

    def held(self, pool: VictimPool, layout: Layout) -> tuple[Ints, Flags]:
        """Return, by row, the milli-GPU of those there that the pool has (of a gang all, on each of its nodes).

        The second array says whether there are any.
        """
        return self._table.held(pool, layout)

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


class _Table:
    """The same as columns, one entry for each node of a workload: a pool is then a few operations on arrays."""

    def __init__(self) -> None:
        self._entries: dict[str, list[int]] = {}
        self._vacant: list[int] = []
        self._used = 0
        self._nodes: dict[str, int] = {}
        self._projects: dict[str, int] = {}
        self._columns = np.zeros((7, FEWEST), dtype=np.int64)
        self._rows: tuple[Layout, int, Ints] | None = None

    def add(self, running: Running) -> None:
        """Note a workload."""
        workload = running.workload
        project = self._projects.setdefault(workload.project, len(self._projects))
        entries = self._entries[workload.id] = []
        for name in {placement.node for placement in running.placements}:
            node = self._nodes.setdefault(name, len(self._nodes))
            entry = self._vacant.pop() if self._vacant else self._append()
            milli, priority, since = workload.total_milli, workload.priority, running.since
            values = node, project, milli, priority, since, workload.preemptible, running.ends_at
            self._columns[:, entry] = values
            entries.append(entry)

    def remove(self, running: Running) -> None:
        """Forget it."""
        for entry in self._entries.pop(running.workload.id):
            self._columns[1, entry] = NOBODY
            self._vacant.append(entry)

    def held(self, pool: VictimPool, layout: Layout) -> tuple[Ints, Flags]:
        """Return the sums of `Residents.held`; who is in the pool is what `VictimPool.has` says."""
        node, project, milli, priority, since, preemptible, ends_at = self._columns[:, : self._used]
        has: Flags = project != NOBODY
        if not pool.everyone:
            has &= preemptible > 0
        elif pool.soon_only:
            has &= (preemptible > 0) | (ends_at > 0)
        if not pool.everyone:
            limits = np.full(len(self._projects) + 1, -1, dtype=np.int64)
            for name, surplus in pool.surplus.items():
                if name in self._projects and surplus > 0:
                    limits[self._projects[name]] = NO_LIMIT if pool.last_may_pass else surplus
            concerned = milli <= limits[project]
            if pool.own in self._projects:
                own = project == self._projects[pool.own]
                concerned = np.where(own, (priority < pool.below) & (milli > pool.spared), concerned)
            has &= concerned & (since <= pool.until)
        for id_ in pool.taken:
            has[self._entries.get(id_, [])] = False
        rows = self._rows_of(layout)
        sums = np.bincount(node[has], weights=milli[has], minlength=len(self._nodes) + 1).astype(np.int64)
        counts = np.bincount(node[has], minlength=len(self._nodes) + 1)
        return sums[rows], counts[rows] > 0

    def _append(self) -> int:
        if self._used == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._used += 1
        return self._used - 1

    def _rows_of(self, layout: Layout) -> Ints:
        """Return the number of each row's node; of one where nothing ran yet the number of none."""
        known = len(self._nodes)
        if self._rows is None or self._rows[0] is not layout or self._rows[1] != known:
            numbers = [self._nodes.get(node.name, known) for node in layout.nodes]
            self._rows = layout, known, np.array(numbers, dtype=np.int64)
        return self._rows[2]
