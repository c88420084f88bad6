"""A few nodes in plain integers, from which running workloads are taken on trial until a waiting one fits.

The search takes or spares one workload after the other, first those on the emptiest GPUs, and gives up a branch that
cannot become cheaper than the best set found. It is exact unless it reaches its limit of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from api.scheduler.cluster import Cluster
from api.scheduler.snapshot import Running, Within, Workload
from api.scheduler.victims import Pool, Rank, order, rank
from appliance.gpu.share import MILLI

STEPS = 4000
"""Steps after which a search is content with the best set found so far."""
FEW = 12
"""Up to so many candidates, sets that cost the same are told apart by whom they take as well."""
NO_ROOM = 1 << 60


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

    def room(self, workload: Workload) -> int:
        """Return how many containers of the workload fit; all GPUs of one are of one set of columns."""
        room = self.containers
        if workload.cpu_milli:
            room = min(room, self.cpu // workload.cpu_milli)
        if workload.memory_mib:
            room = min(room, self.memory // workload.memory_mib)
        if workload.gpu_milli and room > 0:
            rooms = [self._gpu_room(columns, workload.gpu_milli) for columns in self.columns]
            room = min(room, max(rooms, default=0))
        return max(0, room)

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

    def _gpu_room(self, columns: Sequence[int], milli: int) -> int:
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
    pool: Pool
    nodes: list[Node]
    units: list[Unit]
    fits: bool = False
    best: tuple[Rank, tuple[Running, ...]] | None = None
    steps: int = 0
    _taken: list[Unit] = field(default_factory=list)
    _taken_of: dict[str, list[Unit]] = field(default_factory=dict)
    _rooms: list[int] = field(default_factory=list)

    @classmethod
    def of(
        cls, cluster: Cluster, workload: Workload, rows: Sequence[int], running: Iterable[Running], pool: Pool
    ) -> Region:
        """Return the region of these rows of the cluster; of those running there only candidates count."""
        usable = cluster.layout.usable_for(workload)
        one_island = workload.within_required and workload.within is Within.ISLAND
        nodes: list[Node] = []
        for row in rows:
            columns = [int(column) for column in usable[row].nonzero()[0]]
            islands = cluster.layout.island[row].tolist()
            apart = bool(cluster.layout.apart[row])
            by_island = one_island or apart
            # where they cannot meet there is no place for several
            places = 0 if apart and workload.containers > 1 else int(cluster.state.containers[row])
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
        self._rooms = [node.room(self.workload) for node in self.nodes]
        self.best = (best, ()) if best else None
        if self._would_do(self.units, self._missing()):
            self._try(self.units)
        return self.best[1] if self.best and self.best[1] else None

    def _try(self, open_units: Sequence[Unit]) -> None:
        """Go on from what is taken already; `open_units` are those not yet decided."""
        self.steps += 1
        missing = self._missing()
        if missing == 0:
            self._note()
            return
        if self.steps > STEPS or not open_units or not self._may_become_best(missing):
            return
        unit = self._next(open_units)
        rest = [other for other in open_units if other is not unit]
        if self._allows(unit):
            self._take(unit, 1)
            self._try(rest)
            self._take(unit, -1)
        if self._would_do(rest, missing):
            self._try(rest)

    def _owed(self) -> int:
        return self.pool.owed([unit.running for unit in self._taken]) if self.pool.due > 0 else 0

    def _has_room(self) -> bool:
        return self.fits or sum(self._rooms) >= self.workload.containers

    def _missing(self) -> int:
        """Return the fewest milli-GPU that still have to go, at least 1 until the goal is reached; 0 then."""
        owed = self._owed()
        if self._has_room():
            return owed
        whole, fraction = divmod(self.workload.gpu_milli, MILLI)
        if not self.workload.gpu_milli:
            return max(1, owed)
        free: list[int] = []
        for node in self.nodes:
            for columns in node.columns:
                every = len(columns) == len(node.free)
                free += node.free if every else [node.free[column] for column in columns]
        free.sort(reverse=True)
        needed = whole * self.workload.containers
        if len(free) < needed:
            return NO_ROOM
        clear = needed * MILLI - sum(free[:needed])
        held_twice = sum(takewhile(lambda part: part < 0, reversed(free)))
        total = self.workload.total_milli - (sum(free) - held_twice)
        share = fraction - (free[0] if free else 0) if fraction else 0
        return max(1, owed, clear, total, share)

    def _may_become_best(self, missing: int) -> bool:
        """Return whether one more victim could still make a better set than the best."""
        if missing >= NO_ROOM:
            return False
        if self.best is None:
            return True
        gpu_less = not self.workload.gpu_milli or (missing == 1)
        milli = sum(unit.milli for unit in self._taken) + (0 if gpu_less else missing)
        least = (milli, len(self._taken) + 1)
        return least <= self.best[0][:2] if len(self.units) <= FEW else least < self.best[0][:2]

    def _next(self, open_units: Sequence[Unit]) -> Unit:
        """Return the one on the emptiest GPU: the first to go where GPUs are to become whole with little loss."""
        return min(open_units, key=lambda unit: (self._emptiest(unit), unit.milli, unit.rank))

    def _emptiest(self, unit: Unit) -> int:
        return min((MILLI - self.nodes[node].free[column] for node, column, _ in unit.parts), default=NO_ROOM)

    def _would_do(self, units: Sequence[Unit], missing: int) -> bool:
        """Return whether the goal could be reached if all of these were taken too, as far as each may be.

        `missing` is what still has to go.
        """
        allowed = [unit for unit in units if self._allows(unit)]
        taken = [unit.running for unit in self._taken]
        if missing > 1 and missing > self.pool.most(taken, [unit.running for unit in allowed]):
            return False
        given = [*taken, *(unit.running for unit in allowed)]
        return not self.pool.owed(given) and self._has_room_without(allowed)

    def _has_room_without(self, units: Sequence[Unit]) -> bool:
        """Return whether there would be room if these were taken too; nodes are looked at until there is."""
        total = sum(self._rooms)
        if self.fits or total >= self.workload.containers:
            return True
        on: dict[int, list[Unit]] = {}
        for unit in units:
            for index, _ in unit.containers:
                on.setdefault(index, []).append(unit)
        for index, there in on.items():
            total += self.nodes[index].without(index, there).room(self.workload) - self._rooms[index]
            if total >= self.workload.containers:
                return True
        return False

    def _allows(self, unit: Unit) -> bool:
        if self.pool.everyone:
            return True
        # those taken are allowed among themselves, and each project has a limit of its own
        alike = self._taken_of.get(unit.running.workload.project, ())
        return self.pool.allows([*(taken.running for taken in alike), unit.running])

    def _take(self, unit: Unit, sign: int) -> None:
        """Take a unit (1), or give it back (-1)."""
        for index, _ in unit.containers:
            self.nodes[index].count(index, unit, sign)
            self._rooms[index] = self.nodes[index].room(self.workload)
        alike = self._taken_of.setdefault(unit.running.workload.project, [])
        if sign > 0:
            self._taken.append(unit)
            alike.append(unit)
        else:
            self._taken.remove(unit)
            alike.remove(unit)

    def _note(self) -> None:
        """Keep the set as the best if it is, without those of it that turn out not to be needed."""
        spared: list[Unit] = []
        for unit in sorted(self._taken, key=lambda unit: (-unit.milli, -unit.rank[0], -unit.rank[1])):
            self._take(unit, -1)
            if not self._owed() and self._has_room():
                spared.append(unit)
            else:
                self._take(unit, 1)
        victims = tuple(sorted((unit.running for unit in self._taken), key=order))
        for unit in spared:
            self._take(unit, 1)
        if self.best is None or rank(victims) < self.best[0]:
            self.best = rank(victims), victims


def _unit(cluster: Cluster, running: Running, place: dict[str, int], rows: Sequence[int]) -> Unit:
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
