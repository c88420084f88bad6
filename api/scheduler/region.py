"""Regions: a few nodes in plain integers, from which running workloads are taken on trial until a waiting one fits.

The search dives: it takes one candidate after the other, on the node and the GPU that lack the least, until there is
room, and gives back whom it did not need. Of a few candidates all sets are looked at that could be cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import Running, Workload
from api.scheduler.victims import Rank, Taken, VictimPool, order, rank
from common.gpu.share import MILLI
from common.topology import TopologyLevel

FEW = 12
"""Of up to so many candidates the cheapest set is found; of more, one that spares whom it can."""
FEWER = 8
"""Of up to so many, sets that cost the same are told apart by whom they take as well."""
NOWHERE = 1 << 60

Turn = tuple[int, int, int, tuple[int, int, str]]


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
    whole: list[int] = field(default_factory=list)
    """What each column has when all who may go are gone: NOWHERE and more where somebody stays."""

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

    def lacking(self, workload: Workload) -> int:
        """Return how many milli-GPU have to go at least for one container more."""
        whole, fraction = divmod(workload.gpu_milli, MILLI)
        count = (self.fitting(workload) + 1) * whole
        found = NOWHERE
        for columns in self.columns:
            lacks = sorted([self.whole[column] - self.free[column] for column in columns])
            if len(lacks) >= count + bool(fraction):
                found = min(found, sum(lacks[:count]) + (max(0, lacks[count] + fraction - MILLI) if fraction else 0))
        return found

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
    """A workload that may be taken, and what it holds in the region: node, column and milli-GPU; containers by node."""

    running: Running
    workload: Workload
    parts: tuple[tuple[int, int, int], ...]
    containers: tuple[tuple[int, int], ...]
    rank: tuple[int, tuple[int, int, str]]
    """Which of those goes first that stand on equal nodes and GPUs."""
    needs: frozenset[str] = frozenset()
    """Parts of the same gang that have to go before it."""


class Region:
    """Nodes that can hold the workload together, and the search for those who have to leave them."""

    def __init__(self, workload: Workload, pool: VictimPool, nodes: list[Node], units: list[Unit]) -> None:
        self._workload, self._nodes = workload, nodes
        units = _able(units, pool)
        self._taken: dict[str, Unit] = {}
        self._count = Taken(pool)
        self._fitting = [node.fitting(workload) for node in nodes]
        self._fitting_together = sum(self._fitting)
        part = workload.gpu_milli % MILLI or MILLI
        stays = [[MILLI - free for free in node.free] for node in nodes]
        for index, column, milli in (held for unit in units for held in unit.parts):
            stays[index][column] -= milli
        for node, of_node in zip(nodes, stays, strict=True):
            node.whole = [MILLI + (NOWHERE if held + part > MILLI else 0) for held in of_node]
        self._lacking = [node.lacking(workload) for node in nodes]
        in_turn = sorted(((bool(unit.needs), self._turn(unit), unit) for unit in units), key=lambda each: each[:2])
        self._units = [unit for _, _, unit in in_turn]
        self._turns = [turn for _, turn, _ in in_turn]
        self._of = {unit.workload.id: unit for unit in units}
        self._has_parts = any(unit.running.part_of for unit in units)
        self._core_of = {id_: unit.workload.id for unit in units for id_ in unit.needs}
        self._on: list[list[int]] = [[] for _ in nodes]
        for place, unit in enumerate(self._units):
            for index, _ in unit.containers:
                self._on[index].append(place)
        self._best: tuple[Rank, tuple[Running, ...]] | None = None

    @classmethod
    def of(
        cls,
        cluster: ClusterState,
        workload: Workload,
        rows: Sequence[int],
        candidates: Iterable[Running],
        pool: VictimPool,
    ) -> Region:
        """Return the region of these rows of the cluster."""
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
        unique = {each.workload.id: each for each in candidates}
        return cls(workload, pool, nodes, [_unit(cluster, each, place, rows) for each in unique.values()])

    @property
    def candidates(self) -> int:
        """How many may be taken."""
        return len(self._units)

    def search(self, best: Rank | None = None, *, fits: bool = False, exact: bool = True) -> tuple[Running, ...] | None:
        """Return a set that makes room, or None where none is found that is cheaper than `best`.

        `fits` says that there is room already, and only what is due is looked for. Unless it is to be `exact`, no more
        than one set is found, however few may be taken.
        """
        if fits:
            self._fitting_together = self._workload.replicas
        self._best = (best, ()) if best else None
        if self._would_do(self._units):
            self._dive()
            if exact and len(self._units) <= FEW:
                self._branch(0)
        return self._best[1] if self._best and self._best[1] else None

    def _dive(self) -> None:
        """Take one after the other until there is room; then nobody is taken any more."""
        turns = self._turns.copy()
        heap = [(turn, place) for place, turn in enumerate(turns)]
        heapify(heap)
        while heap and not self._suffices():
            turn, place = heappop(heap)
            unit = self._units[place]
            if turn != turns[place] or unit.workload.id in self._taken or not self._take_with_needs(unit):
                continue  # what is not allowed now never will be, and one whose turn has changed stands there again
            changed = {index for each in (unit, *self._needed(unit)) for index, _ in each.containers}
            for index in changed:
                self._lacking[index] = self._nodes[index].lacking(self._workload)
            for other in {other for index in changed for other in self._on[index]}:
                if self._units[other].workload.id in self._taken:
                    continue
                new = self._turn(self._units[other])
                if new != turns[other]:
                    turns[other] = new
                    heappush(heap, (new, other))
        if self._suffices():
            self._note()
        self._give_back(*self._taken.values())

    def _branch(self, at: int) -> None:
        """Look at all sets that could be better than the best, those with the next candidate before those without."""
        if self._suffices():
            self._note()
            return
        if at == len(self._units) or not self._may_be_better():
            return
        unit = self._units[at]
        if unit.needs <= self._taken.keys() and self._count.allows(unit.workload):
            self._take(unit)
            self._branch(at + 1)
            self._give_back(unit)
        if self._would_do(self._units[at + 1 :]):
            self._branch(at + 1)

    def _may_be_better(self) -> bool:
        """Return whether one more could still make a better set than the best."""
        if self._best is None:
            return True
        # of a gang's further containers none counts
        count = (
            sum(not unit.running.part_of for unit in self._taken.values()) if self._has_parts else len(self._taken) + 1
        )
        least, best = (self._count.milli + self._least(), count), self._best[0][:2]
        return least <= best if len(self._units) <= FEWER else least < best

    def _least(self) -> int:
        """Return how many milli-GPU still have to go at least."""
        has_room = self._fitting_together >= self._workload.replicas
        if has_room or len(self._nodes) != 1 or self._workload.replicas > 1:
            return self._count.owed()
        return max(self._count.owed(), self._nodes[0].lacking(self._workload))

    def _suffices(self) -> bool:
        return self._fitting_together >= self._workload.replicas and not self._count.is_owed()

    def _would_do(self, units: Sequence[Unit]) -> bool:
        """Return whether it would suffice to take all of these, whoever is allowed."""
        self._take(*units)
        found = self._suffices()
        self._give_back(*units)
        return found

    def _turn(self, unit: Unit) -> Turn:
        """Return when a unit is taken: first on the node that lacks the least, there on the emptiest GPU."""
        lacking = min([self._lacking[index] for index, _ in unit.containers], default=NOWHERE)
        nodes = self._nodes
        held = min([nodes[at].whole[column] - nodes[at].free[column] for at, column, _ in unit.parts], default=NOWHERE)
        return lacking, held, *unit.rank

    def _needed(self, unit: Unit) -> list[Unit]:
        return [self._of[id_] for id_ in sorted(unit.needs) if id_ in self._of] if unit.needs else []

    def _take_with_needs(self, unit: Unit) -> bool:
        """Take a unit after those that go before it; returns whether it may be taken, for those of them that may go."""
        needed = self._needed(unit)
        if len(needed) < len(unit.needs):
            return False
        for each in (*needed, unit):
            if each.workload.id in self._taken:
                continue
            if not self._count.allows(each.workload):
                return False
            self._take(each)
        return True

    def _take(self, *units: Unit) -> None:
        for unit in units:
            self._taken[unit.workload.id] = unit
            self._count.add(unit.workload)
        self._move(units, 1)

    def _give_back(self, *units: Unit) -> None:
        for unit in units:
            del self._taken[unit.workload.id]
            self._count.remove(unit.workload)
        self._move(units, -1)

    def _move(self, units: Sequence[Unit], sign: int) -> None:
        """Count what units hold as free, or as held again, and what fits then."""
        nodes, changed = self._nodes, set()
        for unit in units:
            for index, column, milli in unit.parts:
                nodes[index].free[column] += sign * milli
            for index, count in unit.containers:
                changed.add(index)
                nodes[index].cpu += sign * count * unit.workload.cpu_milli
                nodes[index].memory += sign * count * unit.workload.memory_mib
                nodes[index].containers += sign * count
        for index in changed:
            fitting = nodes[index].fitting(self._workload)
            self._fitting_together += fitting - self._fitting[index]
            self._fitting[index] = fitting

    def _note(self) -> None:
        """Keep the set as the best if it is, without those of it that turn out not to be needed."""
        taken = list(self._taken.values())
        for unit in sorted(
            taken,
            key=lambda unit: (
                bool(unit.running.part_of),
                -unit.workload.total_milli,
                *(-n for n in order(unit.running)[:2]),
            ),
        ):
            if self._core_of.get(unit.workload.id) in self._taken:
                continue
            self._give_back(unit)
            if not self._suffices():
                self._take(unit)
        victims = tuple(sorted((unit.running for unit in self._taken.values()), key=order))
        for unit in taken:
            if unit.workload.id not in self._taken:
                self._take(unit)
        if self._best is None or rank(victims) < self._best[0]:
            self._best = rank(victims), victims


def _able(units: Sequence[Unit], pool: VictimPool) -> list[Unit]:
    """Return those that may be taken at all, after what has to go before them; what others hold stays."""
    of = {unit.workload.id: unit for unit in units}
    return [unit for unit in units if _is_able(unit, of, Taken(pool))]


def _is_able(unit: Unit, of: Mapping[str, Unit], count: Taken) -> bool:
    if not unit.needs <= of.keys():
        return False
    for each in (*(of[id_] for id_ in sorted(unit.needs)), unit):
        if not count.allows(each.workload):
            return False
        count.add(each.workload)
    return True


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
    workload = running.workload
    rank_ = workload.total_milli, order(running)
    return Unit(running, workload, tuple(parts), tuple(counts.items()), rank_, frozenset(running.extras))
