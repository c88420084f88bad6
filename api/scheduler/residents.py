"""Running workloads by node and by project, so that a decision looks only at those whom it may concern."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from api.scheduler.capacity import Flags, Ints, Layout
from api.scheduler.snapshot import Resource, Running
from api.scheduler.victims import Line, VictimPool, order

FEWEST = 1024
NOBODY = -1
RESOURCES = tuple(Resource)
NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Candidates:
    """Those of a pool: `held` is, by row of the cluster, the milli-GPU of those there (of a gang all, on each node).

    `there` says where there are any, `on` who they are; where an amount is due, `own` are those who owe it, anywhere.
    `beside` is as `held` for another resource.
    """

    held: Ints
    there: Flags
    own: Sequence[Running]
    on: Callable[[int], list[Running]]
    beside: Callable[[Resource], Ints]


class Residents:
    """The workloads that run and are not being stopped.

    Beside those of each node they are kept as columns, one entry for each node of a workload: who is in a pool is then
    told by a few operations on arrays.
    """

    def __init__(self) -> None:
        self._on: defaultdict[str, dict[str, Running]] = defaultdict(dict)
        self._priorities: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._of: defaultdict[str, dict[str, Running]] = defaultdict(dict)
        self._without_gpus: defaultdict[str, Counter[tuple[Resource, ...]]] = defaultdict(Counter)
        self._moved: dict[str, int] = {}
        self._entries: dict[str, list[int]] = {}
        self._running: list[Running | None] = []
        self._vacant: list[int] = []
        self._nodes: dict[str, int] = {}
        self._projects: dict[str, int] = {}
        self._columns = np.zeros((11, FEWEST), dtype=np.int64)
        self._rows: tuple[Layout, int, Ints] | None = None
        self._extras: Counter[str] = Counter()
        self._by_age: dict[str, list[Running]] = {}
        self._by_priority: dict[str, list[Running]] = {}

    def add(self, running: Running) -> None:
        """Note where it runs."""
        workload = running.workload
        self._by_age.pop(workload.project, None)
        self._by_priority.pop(workload.project, None)
        project = self._projects.setdefault(workload.project, len(self._projects))
        entries = self._entries[workload.id] = []
        beside = [workload.amount(resource) for resource in RESOURCES]
        self._of[workload.project][workload.id] = running
        for name in {placement.node for placement in running.placements}:
            self._on[name][workload.id] = running
            node = self._nodes.setdefault(name, len(self._nodes))
            entry = self._vacant.pop() if self._vacant else self._append()
            self._running[entry] = running
            asks = project, workload.total_milli, workload.priority, running.since, workload.preemptible
            self._columns[:, entry] = node, *asks, running.ends_at, workload.moves, *beside, bool(running.part_of)
            entries.append(entry)
        if workload.preemptible:
            self._priorities[workload.project][workload.priority] += 1
            self._count_without_gpus(running, 1)
        if workload.moved_at:
            self._moved[workload.id] = workload.moved_at
        if running.part_of:
            self._extras[workload.project] += 1

    def remove(self, running: Running) -> None:
        """Forget it; the exact inverse of `add`."""
        workload = running.workload
        self._by_age.pop(workload.project, None)
        self._by_priority.pop(workload.project, None)
        self._moved.pop(workload.id, None)
        if running.part_of:
            self._extras[workload.project] -= 1
        del self._of[workload.project][workload.id]
        for name in {placement.node for placement in running.placements}:
            del self._on[name][workload.id]
        for entry in self._entries.pop(workload.id):
            self._columns[1, entry] = NOBODY
            self._running[entry] = None
            self._vacant.append(entry)
        if workload.preemptible:
            self._count_without_gpus(running, -1)
            priorities = self._priorities[workload.project]
            priorities[workload.priority] -= 1
            if not priorities[workload.priority]:
                del priorities[workload.priority]

    def on(self, node: str) -> Iterable[Running]:
        """Return those that have a container on the node."""
        return self._on[node].values() if node in self._on else ()

    def of(self, project: str) -> Iterable[Running]:
        """Return those of a project."""
        return self._of[project].values() if project in self._of else ()

    def youngest(self, amounts: Mapping[str, int], but: Collection[str]) -> frozenset[str]:
        """Return who came last to so many milli-GPU of each project; the one that passes the amount is among them.

        Of those that started at once the first to be served are the oldest.
        """
        found: set[str] = set()
        for name, amount in amounts.items():
            left = amount
            if name not in self._by_age:
                self._by_age[name] = sorted(self._of[name].values(), key=_age) if name in self._of else []
            for running in self._by_age[name]:
                if left <= 0:
                    break
                if running.workload.id not in but:
                    found.add(running.workload.id)
                    left -= running.workload.total_milli
        return frozenset(found)

    def beyond(self, amounts: Mapping[str, int], but: Collection[str], of: Resource | None = None) -> frozenset[str]:
        """Return what of each project is beyond its quota, which it exceeds by so much, of GPUs or of a resource.

        That is the preemptible work of the lowest priority, of equal ones the youngest (see `rights`).
        """
        found: set[str] = set()
        for name, amount in amounts.items():
            left = amount
            for running in self._ordered(name):
                if left <= 0:
                    break
                if running.workload.id not in but and (takes := _takes(running, of)):
                    found.add(running.workload.id)
                    left -= takes
        return frozenset(found)

    def _ordered(self, project: str) -> Sequence[Running]:
        """Return the preemptible work of a project, what goes first before the rest."""
        if project not in self._by_priority:
            mine = [each for each in self.of(project) if each.workload.preemptible]
            self._by_priority[project] = sorted(mine, key=order)
        return self._by_priority[project]

    def has_below(self, project: str, priority: int) -> bool:
        """Return whether a preemptible workload of the project has a lower priority."""
        return project in self._priorities and any(each < priority for each in self._priorities[project])

    def has_extras(self, project: str) -> bool:
        """Return whether a gang of the project has more containers than it started with."""
        return self._extras[project] > 0

    def without_gpus(self) -> Mapping[str, Mapping[tuple[Resource, ...], int]]:
        """Return how many preemptible workloads without a GPU ask for what, of each project that has any."""
        return self._without_gpus

    def moved_since(self, moment: int) -> int:
        """Return how many were moved since then."""
        return sum(moved_at > moment for moved_at in self._moved.values())

    def candidates(self, pool: VictimPool, layout: Layout) -> Candidates:
        """Return those who are in the pool."""
        has, rows = self._in_pool(pool), self._rows_of(layout)
        if pool.alone is not None:
            has &= self._those(pool.alone)
        node, project, milli = self._columns[:3, : len(has)]
        nodes = len(self._nodes) + 1
        held = np.bincount(node[has], weights=milli[has], minlength=nodes).astype(np.int64)
        there = np.bincount(node[has], minlength=nodes) > 0
        owing = [number for name in pool.owing if (number := self._projects.get(name)) is not None]
        own = np.flatnonzero(has & np.isin(project, owing)) if owing else ()
        everywhere = {each.workload.id: each for at in own if (each := self._running[at])}

        def on(row: int) -> list[Running]:
            there = [each for each in self.on(layout.nodes[row].name) if has[self._entries[each.workload.id][0]]]
            # what has to go before these, wherever it is
            of = [(each.workload.project, id_) for each in there for id_ in each.extras if id_ in self._entries]
            return there + [self._of[project][id_] for project, id_ in of if has[self._entries[id_][0]]]

        def beside(resource: Resource) -> Ints:
            amount = self._beside_of(resource)
            return np.bincount(node[has], weights=amount[has], minlength=nodes).astype(np.int64)[rows]

        return Candidates(held[rows], there[rows], tuple(everywhere.values()), on, beside)

    def _in_pool(self, pool: VictimPool) -> Flags:
        _, project, milli, priority, _, preemptible, ends_at, moves = self._columns[:8, : len(self._running)]
        has: Flags = project != NOBODY
        if not pool.everyone:
            limits = np.full(len(self._projects) + 1, -1, dtype=np.int64)
            for name, surplus in pool.surplus.items():
                if name in self._projects and surplus > 0:
                    limits[self._projects[name]] = NO_LIMIT if pool.last_may_pass else surplus
            concerned = self._of_others(pool, milli <= limits[project])
            if pool.own in self._projects:
                own = project == self._projects[pool.own]
                concerned = np.where(own, (priority < pool.below) & (milli > pool.spared), concerned)
            has &= (preemptible > 0) & concerned & self._ran_long_enough(pool)
            if pool.extras_alone:
                is_further = self._columns[10, : len(self._running)] > 0
                has &= is_further | (project != self._projects.get(pool.own, NOBODY))
        elif pool.movable is not None:
            has &= (preemptible > 0) & self._ran_long_enough(pool) & (moves < pool.movable)
        elif pool.soon_only:
            has &= (preemptible > 0) | (ends_at > 0)
        if pool.ends_only:
            has &= ends_at > 0
        if pool.of is not None:
            has &= np.isin(project, [self._projects[name] for name in pool.of if name in self._projects])
        for id_ in pool.taken:
            has[self._entries.get(id_, [])] = False
        return has

    def _of_others(self, pool: VictimPool, within_surplus: Flags) -> Flags:
        """Return which of those that their projects' surplus is enough for the pool concerns, and which guests."""
        _, project, milli = self._columns[:3, : len(self._running)]
        guests: Flags = milli == 0
        concerned = within_surplus
        if pool.beyond is not None:
            concerned &= guests | self._those(pool.beyond)
        if pool.lines is not None:
            guests &= self._is_beyond(pool.lines, last_may_pass=pool.last_may_pass)
            concerned &= guests | (milli > 0)
        if pool.guests_of is not None:
            concerned |= guests & (project != self._projects.get(pool.guests_of, NOBODY))
        return concerned

    def _those(self, ids: Iterable[str]) -> Flags:
        found = np.zeros(len(self._running), dtype=bool)
        for id_ in ids:
            found[self._entries[id_]] = True
        return found

    def _is_beyond(self, lines: Mapping[str, Line], *, last_may_pass: bool) -> Flags:
        """Return which work may be what its project has beyond its quotas of CPU and memory."""
        known = {self._projects[name]: line for name, line in lines.items() if name in self._projects}
        numbers, project = list(known), self._columns[1, : len(self._running)]
        surplus = np.full(len(self._projects) + 1, NO_LIMIT, dtype=np.int64)
        surplus[numbers] = [NO_LIMIT if line.surplus and last_may_pass else line.surplus for line in known.values()]
        has_right, is_within = np.zeros_like(project, dtype=bool), np.zeros_like(project, dtype=bool)
        for resource in RESOURCES:
            amount, of = self._beside_of(resource), np.zeros(len(self._projects) + 1, dtype=bool)
            of[numbers] = [resource in line.given for line in known.values()]
            has_right |= of[project] & (amount > 0)
            of[numbers] = [resource is line.resource for line in known.values()]
            is_within |= of[project] & ((amount == 0) | (amount > surplus[project]))
        for name, line in lines.items():
            if line.beyond is not None and name in self._projects:
                is_within |= (project == self._projects[name]) & ~self._those(line.beyond)
        return np.asarray(~(has_right & is_within))

    def _beside_of(self, resource: Resource) -> Ints:
        amounts: Ints = self._columns[8 + RESOURCES.index(resource), : len(self._running)]
        return amounts

    def _ran_long_enough(self, pool: VictimPool) -> Flags:
        project, since = self._columns[1, : len(self._running)], self._columns[4, : len(self._running)]
        # a clock that was set back leaves starts to come: to wait for these could take for ever
        ran = np.abs(pool.now - since)
        own = {self._projects[name]: least for name, least in pool.least_of.items() if name in self._projects}
        if not own:
            return np.asarray(ran >= pool.least)
        least = np.full(len(self._projects) + 1, pool.least, dtype=np.int64)
        least[list(own)] = list(own.values())
        return np.asarray(ran >= least[project])

    def _count_without_gpus(self, running: Running, sign: int) -> None:
        workload = running.workload
        if workload.total_milli:
            return
        asked = tuple(resource for resource in RESOURCES if workload.amount(resource))
        of = self._without_gpus[workload.project]
        of[asked] += sign
        if not of[asked]:
            del of[asked]
        if not of:
            del self._without_gpus[workload.project]

    def _append(self) -> int:
        if len(self._running) == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._running.append(None)
        return len(self._running) - 1

    def _rows_of(self, layout: Layout) -> Ints:
        """Return the number of each row's node; of one where nothing ran yet the number of none."""
        known = len(self._nodes)
        if self._rows is None or self._rows[0] is not layout or self._rows[1] != known:
            numbers = [self._nodes.get(node.name, known) for node in layout.nodes]
            self._rows = layout, known, np.array(numbers, dtype=np.int64)
        return self._rows[2]


def _takes(running: Running, of: Resource | None) -> int:
    return running.workload.amount(of) if of else running.workload.total_milli


def _age(running: Running) -> tuple[int, bool, int, int]:
    """Rank the youngest first: of a gang what it has grown by, then who was served last."""
    workload = running.workload
    return -running.since, not running.part_of, workload.priority, -workload.submitted_at
