"""Regions: a few nodes in plain integers, from which running workloads are taken on trial until a waiting one fits.

The search takes or spares one workload after the other, first those on the emptiest GPUs, and gives up a branch that
cannot become cheaper than the best set found. It is exact unless it reaches its limit of steps. Of each step only what
it changes is counted again: a gang may lie on hundreds of nodes with thousands of workloads.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from api.scheduler.cluster import ClusterState
from api.scheduler.limits import Limits
from api.scheduler.snapshot import Running, Workload
from api.scheduler.victims import Rank, VictimPool, order, rank
from common.gpu.share import MILLI
from common.topology import TopologyLevel

STEPS = 4000
"""Steps after which a search is content with the best set found so far."""
FEW = 12
"""Up to so many candidates, sets that cost the same are told apart by whom they take as well."""
NEVER = 1 << 60

Turn = tuple[int, int, tuple[int, int, str], int]
"""When a unit is decided on, the least first; the last number is its place among the units."""


@dataclass(slots=True)
class Node:
    """What is free on one node; columns are its GPUs as in the cluster."""

    free: list[int]
    columns: tuple[tuple[int, ...], ...]
    cpu: int
    memory: int
    containers: int
    slices: frozenset[int] = frozenset()
    """Columns that go whole to one container."""

    def fitting(self, workload: Workload) -> int:
        """Return how many containers of the workload fit; all GPUs of one are of one set of columns."""
        fitting = self.containers
        if workload.cpu_milli:
            fitting = min(fitting, self.cpu // workload.cpu_milli)
        if workload.memory_mib:
            fitting = min(fitting, self.memory // workload.memory_mib)
        if workload.gpu_milli and fitting > 0:
            fits = [self._gpu_fitting(columns, workload.gpu_milli) for columns in self.columns]
            fitting = min(fitting, max(fits, default=0))
        return max(0, fitting)

    def count(self, index: int, unit: Unit, sign: int) -> None:
        """Count what a unit holds here, on the node of this index, as free (1), or as held again (-1)."""
        workload = unit.running.workload
        for at, column, milli in unit.parts:
            if at == index:
                self.free[column] += sign * milli
        for at, count in unit.containers:
            if at == index:
                self.cpu += sign * count * workload.cpu_milli
                self.memory += sign * count * workload.memory_mib
                self.containers += sign * count

    def without(self, index: int, units: Iterable[Unit]) -> Node:
        """Return the node of this index as it would be without these units."""
        node = Node(self.free.copy(), self.columns, self.cpu, self.memory, self.containers, self.slices)
        for unit in units:
            node.count(index, unit, 1)
        return node

    def _gpu_fitting(self, columns: Sequence[int], milli: int) -> int:
        whole, fraction = divmod(milli, MILLI)
        free = [self.free[column] for column in columns]
        empty = free.count(MILLI)
        if not fraction:
            return empty // whole
        if not whole:
            pieces = [part // fraction for part in free]
            if self.slices:
                pieces = [min(n, 1) if c in self.slices else n for c, n in zip(columns, pieces, strict=True)]
            return sum(part for part in pieces if part > 0)
        shared = sum(part // fraction for part in free if 0 < part < MILLI)
        in_one = MILLI // fraction
        count = empty // whole
        while count and count * whole + max(0, count - shared + in_one - 1) // in_one > empty:
            count -= 1
        return count


@dataclass(slots=True, eq=False)
class Unit:
    """A workload that may be taken, and what it holds in the region: node, column and milli-GPU."""

    running: Running
    parts: tuple[tuple[int, int, int], ...]
    containers: tuple[tuple[int, int], ...]
    milli: int
    rank: tuple[int, int, str]


@dataclass
class Region:
    """Nodes that can hold the workload together, and the search for those who have to leave them."""

    workload: Workload
    pool: VictimPool
    nodes: list[Node]
    units: list[Unit]
    fits: bool = False
    best: tuple[Rank, tuple[Running, ...]] | None = None
    steps: int = 0
    _taken: list[Unit] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Count what the nodes have; each usable GPU once."""
        self._limits = Limits(self.pool, [unit.running for unit in self.units])
        self._on: list[list[int]] = [[] for _ in self.nodes]
        for place, unit in enumerate(self.units):
            for index, _ in unit.containers:
                self._on[index].append(place)
        self._fitting = [node.fitting(self.workload) for node in self.nodes]
        self._fitting_together = sum(self._fitting)
        self._at_most, self._most_together = self._fitting.copy(), self._fitting_together
        self._changed = {index for index, there in enumerate(self._on) if there}
        self._usable = [frozenset(column for columns in node.columns for column in columns) for node in self.nodes]
        self._free = sorted(
            node.free[column] for node, usable in zip(self.nodes, self._usable, strict=True) for column in usable
        )
        self._held = [self._usable_parts(unit) for unit in self.units]
        self._sum, self._held_twice = sum(self._free), sum(part for part in self._free if part < 0)
        self._turns: list[Turn | None] = [self._turn(place) for place in range(len(self.units))]
        self._order = sorted(turn for turn in self._turns if turn)

    @classmethod
    def of(
        cls,
        cluster: ClusterState,
        workload: Workload,
        rows: Sequence[int],
        running: Iterable[Running],
        pool: VictimPool,
    ) -> Region:
        """Return the region of these rows of the cluster; of those running there only candidates count."""
        usable = cluster.layout.usable_for(workload)
        one_island = workload.within_required and workload.within is TopologyLevel.ISLAND
        nodes: list[Node] = []
        for row in rows:
            columns = [int(column) for column in usable[row].nonzero()[0]]
            islands = cluster.layout.island[row].tolist()
            apart = bool(cluster.layout.apart[row])
            by_island = one_island or apart
            # where they cannot meet there is no place for several
            places = 0 if apart and workload.replicas > 1 else int(cluster.state.containers[row])
            sets = {islands[column] for column in columns} if by_island else {0}
            nodes.append(
                Node(
                    cluster.state.milli[row].tolist(),
                    tuple(
                        tuple(c for c in columns if not by_island or islands[c] == island) for island in sorted(sets)
                    ),
                    int(cluster.state.cpu[row]),
                    int(cluster.state.memory[row]),
                    places,
                    frozenset(c for c in columns if cluster.layout.slices[row, c]),
                )
            )
        place = {cluster.layout.nodes[row].name: index for index, row in enumerate(rows)}
        candidates = {each.workload.id: each for each in running if pool.has(each)}
        units = [_unit(cluster, each, place, rows) for each in candidates.values()]
        return cls(workload, pool, nodes, sorted(units, key=lambda unit: unit.rank))

    def search(self, best: Rank | None = None) -> tuple[Running, ...] | None:
        """Return the cheapest set that makes room, or None where there is none cheaper than `best`."""
        self.best = (best, ()) if best else None
        if self._would_do(self._missing()):
            self._try()
        return self.best[1] if self.best and self.best[1] else None

    def _try(self) -> None:
        """Decide on one unit after the other, taken before spared, and go back where that leads to nothing better.

        The way is kept in a list, as it may be thousands of units long.
        """
        way: list[tuple[int, int, bool]] = []
        onward = True
        while self.steps <= STEPS and (onward or way):
            if onward:
                decided = self._decide()
                onward = decided is not None
                if decided:
                    way.append(decided)
                continue
            place, missing, taken = way.pop()
            if taken:
                self._take(place, -1)
                onward = self._would_do(missing)
            if onward:
                way.append((place, missing, False))
            else:
                self._reopen(place)

    def _decide(self) -> tuple[int, int, bool] | None:
        """Take or spare the next unit: which it is, what was missing, whether it is taken; None where the way ends."""
        self.steps += 1
        missing = self._missing()
        if missing == 0:
            self._note()
            return None
        if self.steps > STEPS or not self._order or not self._may_become_best(missing):
            return None
        place = self._order[0][-1]
        allowed = self._limits.allowed[place]
        self._close(place)
        if allowed:
            self._take(place, 1)
        elif not self._would_do(missing):
            self._reopen(place)
            return None
        return place, missing, allowed

    def _all_fit(self) -> bool:
        return self.fits or self._fitting_together >= self.workload.replicas

    def _missing(self) -> int:
        """Return the fewest milli-GPU that still have to go, at least 1 until the goal is reached; 0 then."""
        owed = self._limits.owed()
        if self._all_fit():
            return owed
        whole, fraction = divmod(self.workload.gpu_milli, MILLI)
        if not self.workload.gpu_milli:
            return max(1, owed)
        needed = whole * self.workload.replicas
        if len(self._free) < needed:
            return NEVER
        clear = needed * MILLI - sum(self._free[len(self._free) - needed :])
        total = self.workload.total_milli - (self._sum - self._held_twice)
        share = fraction - (self._free[-1] if self._free else 0) if fraction else 0
        return max(1, owed, clear, total, share)

    def _may_become_best(self, missing: int) -> bool:
        """Return whether one more victim could still make a better set than the best."""
        if missing >= NEVER:
            return False
        if self.best is None:
            return True
        gpu_less = not self.workload.gpu_milli or (missing == 1)
        least = (self._limits.taken + (0 if gpu_less else missing), len(self._taken) + 1)
        return least <= self.best[0][:2] if len(self.units) <= FEW else least < self.best[0][:2]

    def _turn(self, place: int) -> Turn:
        """Return when a unit is decided on: first the one on the emptiest GPU, so that GPUs become whole soon."""
        unit = self.units[place]
        held = min([MILLI - self.nodes[node].free[column] for node, column, _ in unit.parts], default=NEVER)
        return held, unit.milli, unit.rank, place

    def _would_do(self, missing: int) -> bool:
        """Return whether the goal could be reached if all others were taken too, as far as each may be.

        `missing` is what still has to go.
        """
        if missing > 1 and missing > self._limits.most:
            return False
        return not self._limits.would_be_owed() and self._would_fit()

    def _would_fit(self) -> bool:
        """Return whether it would fit; only nodes where that has changed are looked at."""
        if self._all_fit():
            return True
        allowed = self._limits.allowed
        for index in self._changed:
            units = [self.units[place] for place in self._on[index] if allowed[place]]
            fitting = self.nodes[index].without(index, units).fitting(self.workload) if units else self._fitting[index]
            self._most_together += fitting - self._at_most[index]
            self._at_most[index] = fitting
        self._changed.clear()
        return self._most_together >= self.workload.replicas

    def _close(self, place: int) -> None:
        """Count a unit as decided on."""
        turn = self._turns[place]
        if turn:
            del self._order[bisect_left(self._order, turn)]
        self._turns[place] = None
        self._limits.close(place)
        self._changed.update(index for index, _ in self.units[place].containers)

    def _reopen(self, place: int) -> None:
        turn = self._turns[place] = self._turn(place)
        insort(self._order, turn)
        self._limits.reopen(place)
        self._changed.update(index for index, _ in self.units[place].containers)

    def _take(self, place: int, sign: int) -> None:
        """Take a unit that is decided on (1), or give it back (-1)."""
        unit = self.units[place]
        for (node, column), milli in self._held[place].items():
            self._count_free(self.nodes[node].free[column], sign * milli)
        self._move(unit, sign)
        for other in self._limits.take(place) if sign > 0 else self._limits.give_back(place):
            self._changed.update(index for index, _ in self.units[other].containers)
        for index, _ in unit.containers:
            self._changed.add(index)
            for other in self._on[index]:
                turn = self._turns[other]
                if turn and turn != (new := self._turn(other)):
                    del self._order[bisect_left(self._order, turn)]
                    insort(self._order, new)
                    self._turns[other] = new

    def _usable_parts(self, unit: Unit) -> dict[tuple[int, int], int]:
        """Return what a unit holds of each GPU that the workload may use."""
        held: dict[tuple[int, int], int] = {}
        for node, column, milli in unit.parts:
            if column in self._usable[node]:
                held[node, column] = held.get((node, column), 0) + milli
        return held

    def _count_free(self, before: int, more: int) -> None:
        """Count another amount of what is free on a GPU."""
        del self._free[bisect_left(self._free, before)]
        insort(self._free, before + more)
        self._sum += more
        self._held_twice += min(0, before + more) - min(0, before)

    def _move(self, unit: Unit, sign: int) -> None:
        """Take a unit, or give it back, and count what fits then."""
        for index, _ in unit.containers:
            self.nodes[index].count(index, unit, sign)
            fitting = self.nodes[index].fitting(self.workload)
            self._fitting_together += fitting - self._fitting[index]
            self._fitting[index] = fitting
        if sign > 0:
            self._taken.append(unit)
        else:
            self._taken.remove(unit)

    def _note(self) -> None:
        """Keep the set as the best if it is, without those of it that turn out not to be needed."""
        spared: list[Unit] = []
        for unit in sorted(self._taken, key=lambda unit: (-unit.milli, -unit.rank[0], -unit.rank[1])):
            self._move(unit, -1)
            if self._all_fit() and not self.pool.owed([taken.running for taken in self._taken]):
                spared.append(unit)
            else:
                self._move(unit, 1)
        victims = tuple(sorted((unit.running for unit in self._taken), key=order))
        for unit in spared:
            self._move(unit, 1)
        if self.best is None or rank(victims) < self.best[0]:
            self.best = rank(victims), victims


def _unit(cluster: ClusterState, running: Running, place: dict[str, int], rows: Sequence[int]) -> Unit:
    parts: list[tuple[int, int, int]] = []
    counts: dict[int, int] = {}
    for placement in running.placements:
        index = place.get(placement.node)
        if index is None:
            continue
        counts[index] = counts.get(index, 0) + 1
        for share in placement.shares:
            column = cluster.layout.column(rows[index], share.uuid, share.index)
            if column is not None:
                parts.append((index, column, cluster.layout.taken(rows[index], column, share.milli)))
    return Unit(running, tuple(parts), tuple(counts.items()), running.workload.total_milli, order(running))
