"""Cluster state while decisions are taken: what is free on every node, and where a workload would go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from api.scheduler import explanations, fragmentation
from api.scheduler.capacity import Flags, Free, Ints, Layout, fitting
from api.scheduler.demand import Demand
from api.scheduler.placement import Search
from api.scheduler.snapshot import NodeSnapshot, Placement, Workload
from api.scheduler.topology import allowed


class ClusterState:
    """What is free on the nodes. `allocate` takes places, `release` gives them back, `find` looks for the best ones.

    Nothing checks that what is allocated was free: places may be allocated ahead of those who leave them (a
    reservation), and a node that shrank may hold more than it has. What is free is then negative, and nothing new fits
    until all is released. Places on a node or GPU that is no more are passed over.
    """

    def __init__(self, nodes: Sequence[NodeSnapshot]) -> None:
        self.layout = Layout(nodes)
        self.state = self.layout.empty.copy()
        self.state.milli -= self.layout.orphaned
        self.state.cpu -= self.layout.foreign_cpu
        self.state.memory -= self.layout.foreign_memory
        self.demand = Demand(self.layout)
        self._done: list[Callable[[], None]] = []
        self._trials = 0

    def replace(self, nodes: Sequence[NodeSnapshot]) -> bool:
        """Open and close nodes; returns False, and changes nothing, where they differ in more than that."""
        return self.layout.replace(nodes)

    def allocate(self, placements: Sequence[Placement], workload: Workload) -> None:
        """Take the places: one container of the workload on each."""
        self._do(lambda sign: self._change(-sign, placements, workload))

    def release(self, placements: Sequence[Placement], workload: Workload) -> None:
        """Give the places back; the exact inverse of `allocate`."""
        self._do(lambda sign: self._change(sign, placements, workload))

    def observe(self, workload: Workload) -> None:
        """Count a workload that waits: placement leaves room for the kinds of work that run or were observed.

        A trial undoes it, too.
        """
        self._do(lambda sign: self.demand.count(workload, sign * workload.replicas))

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo at the end whatever is allocated and released inside; trials may lie in one another."""
        start = len(self._done)
        self._trials += 1
        try:
            yield
        finally:
            self._trials -= 1
            for undo in reversed(self._done[start:]):
                undo()
            del self._done[start:]

    def find(
        self, workload: Workload, among: Flags | None = None, *, if_empty: bool = False
    ) -> tuple[Placement, ...] | None:
        """Return the best places for all containers of the workload on open nodes, or None; changes nothing.

        `among` leaves only some nodes; with `if_empty` nothing else runs there.
        """
        takes, state = self.layout.takes(workload), self.layout.empty.copy() if if_empty else self.state
        search = Search(self.layout, state, workload, takes if among is None else takes & among)
        return search.place(lambda item, rows: fragmentation.best(self.layout, state, self.demand, item, rows))

    def fits(self, workload: Workload, free: Free) -> bool:
        """Return whether all containers of the workload would have places on open nodes if this were free."""
        return self.most(workload, free) >= workload.replicas

    def most(self, workload: Workload, free: Free | None = None) -> int:
        """Return how many of the workload's containers have places together now, or if this were free."""
        return Search(self.layout, free or self.state, workload, self.layout.takes(workload)).most()

    def fitting(self, workload: Workload) -> Ints:
        """Return how many containers of the workload fit on each node now: 0 where it may not go.

        Rows are the nodes in the order of `names`.
        """
        takes = self.layout.takes(workload) & allowed(self.layout, workload)
        return fitting(self.layout, self.state, workload, takes)

    def has_free(self, placements: Sequence[Placement], workload: Workload) -> bool:
        """Return whether the workload could go to exactly these places now."""
        takes = self.layout.takes(workload) & allowed(self.layout, workload)
        if not all(self._is_open(placement, takes) for placement in placements):
            return False
        with self.trial():
            self.allocate(placements, workload)
            rows = [self.layout.rows[placement.node] for placement in placements]
            state = self.state
            enough = (
                (state.cpu[rows] >= 0).all() and (state.memory[rows] >= 0).all() and (state.containers[rows] >= 0).all()
            )
            return bool(enough and (state.milli[rows] >= 0).all())

    def free_of(self, placements: Sequence[Placement]) -> int:
        """Return how many milli-GPU of these places are free now."""
        free = 0
        for placement in placements:
            row = self.layout.rows[placement.node]
            for share in placement.shares:
                column = self.layout.column(row, share.uuid, share.index)
                if column is not None:
                    free += min(share.milli, max(0, int(self.state.milli[row, column])))
        return free

    def _is_open(self, placement: Placement, takes: Flags) -> bool:
        row = self.layout.rows.get(placement.node)
        known = row is not None and all(
            self.layout.column(row, share.uuid, share.index) is not None for share in placement.shares
        )
        return known and bool(takes[row])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes in the order of the rows."""
        return tuple(self.layout.rows)

    def never_fits(self, workload: Workload) -> str:
        """Return why the workload could not run even if nothing else did and every node were open, or nothing."""
        return explanations.never_fits(self.layout, workload)

    def largest_piece(self, workload: Workload, known: explanations.Known | None = None) -> str:
        """Return the largest piece that is free now where the workload may go, for people.

        `known` holds what was found so far, for as long as nothing changes.
        """
        return explanations.largest_piece(self.layout, self.state, workload, known)

    def marks(self) -> object:
        """Return what tells the state from another one."""
        state = self.state
        arrays = state.milli, state.cpu, state.memory, state.containers
        return *(each.tobytes() for each in arrays), self.demand.counts()

    def _do(self, change: Callable[[int], None]) -> None:
        """Make a change, and note how to undo it while there is a trial: by the same with the other sign."""
        change(1)
        if self._trials:
            self._done.append(partial(change, -1))

    def _change(self, sign: int, placements: Sequence[Placement], workload: Workload) -> None:
        state, layout = self.state, self.layout
        self.demand.count(workload, -sign * len(placements))
        for placement in placements:
            row = layout.rows.get(placement.node)
            if row is None:
                continue
            state.cpu[row] += sign * workload.cpu_milli
            state.memory[row] += sign * workload.memory_mib
            state.containers[row] += sign
            for share in placement.shares:
                column = layout.column(row, share.uuid, share.index)
                if column is not None:
                    milli = layout.taken(row, column, share.milli) if layout.sliced else share.milli
                    state.milli[row, column] += sign * milli
