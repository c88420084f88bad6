"""Placement: where a workload fits best; set of nodes, topology domain, nodes, and the GPUs on each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from api.scheduler.capacity import Flags, Free, Ints, Layout, fitting, island_fitting
from api.scheduler.gpus import Gpu, choose
from api.scheduler.snapshot import Placement, Workload
from api.scheduler.topology import allowed, levels, merged, node_sets
from common.gpu.share import MILLI, GpuShare
from common.topology import TopologyLevel

Best = Callable[[Workload, Ints], int]
"""Chooses one of the rows of nodes that fit one container of a workload; see `fragmentation`."""
Rows = list[tuple[int, int]]
"""Rows of nodes, and how many containers on each."""


class Search:
    """A look for places for one workload, on the nodes given. It changes nothing."""

    def __init__(self, layout: Layout, free: Free, workload: Workload, nodes: Flags | None = None) -> None:
        self.layout, self.free, self.workload = layout, free, workload
        may = allowed(layout, workload)
        # how many containers each node has room for
        self.fits = fitting(layout, free, workload, may if nodes is None else may & nodes)

    def place(self, best: Best) -> tuple[Placement, ...] | None:
        """Return the best places for all containers, or None where they do not fit together.

        Groups are tried in the order of preference, in each the smallest topology domain first; equal places by name.
        """
        found = self.where(best)
        if not found:
            return None
        level, rows = found
        is_one = level is TopologyLevel.ISLAND
        return tuple(each for row, count in rows for each in self._fill(row, count, one_island=is_one))

    def where(self, best: Best) -> tuple[TopologyLevel, Rows] | None:
        """Return on which rows the containers would be, in one domain of this level; the GPUs are not chosen yet."""
        if not self.fits.any():
            return None
        for tier in node_sets(self.layout, self.workload):
            for level in levels(self.workload):
                if level in (TopologyLevel.ISLAND, TopologyLevel.NODE):
                    found = self._on_one(level, merged(tier), best)
                else:
                    found = self._on_several(level, tier, best)
                if found:
                    return level, found
        return None

    def most(self) -> int:
        """Return how many containers fit together where the workload may lie, counted up to all of them."""
        most, asked = 0, levels(self.workload)
        # the largest domains hold the smaller ones, but for nodes of which the switch is not known
        largest = asked[-2:] if asked[-1] is TopologyLevel.SWITCH else asked[-1:]
        for tier in node_sets(self.layout, self.workload):
            for level in largest:
                if level in (TopologyLevel.ISLAND, TopologyLevel.NODE):
                    sums = [self._fitting(level, merged(tier))]
                else:
                    sums = [sums for _, _, sums in self._domains(level, tier)]
                most = max(most, *(int(each.max(initial=0)) for each in sums))
        return min(most, self.workload.replicas)

    def _on_one(self, level: TopologyLevel, nodes: Flags, best: Best) -> Rows:
        """Put all containers on one node: the one where the fewest fit that suffices, then the best."""
        sums = self._fitting(level, nodes)
        rows = np.flatnonzero(sums >= self.workload.replicas)
        if not len(rows):
            return []
        return [(self._row(rows, sums, best), self.workload.replicas)]

    def _on_several(self, level: TopologyLevel, tier: Sequence[Flags], best: Best) -> Rows:
        """Put the containers on as few nodes as possible of the tightest domain."""
        tightest: tuple[int, Flags] | None = None
        for nodes, codes, sums in self._domains(level, tier):
            for code in np.flatnonzero(sums >= self.workload.replicas):
                if tightest is None or sums[code] < tightest[0]:
                    tightest = int(sums[code]), nodes & (codes == code)
        if tightest is None:
            return []
        left, fitting = self.workload.replicas, np.where(tightest[1], self.fits, 0)
        found: Rows = []
        while left:
            rows = np.flatnonzero(fitting >= min(left, fitting.max()))
            row = self._row(rows, fitting, best)
            count = min(left, int(fitting[row]))
            found.append((row, count))
            left, fitting[row] = left - count, 0
        return found

    def _fitting(self, level: TopologyLevel, nodes: Flags) -> Ints:
        inside = np.where(nodes, self.fits, 0)
        # a lone container with no more than one GPU is in one island anyway
        of_one = self.workload.replicas == 1 and self.workload.gpu_milli <= MILLI
        if level is TopologyLevel.ISLAND and not of_one:
            rows = np.flatnonzero(inside)
            inside[rows] = np.minimum(inside[rows], island_fitting(self.layout, self.free, self.workload, rows))
        return inside

    def _domains(self, level: TopologyLevel, tier: Sequence[Flags]) -> Iterator[tuple[Flags, Ints, Ints]]:
        """Yield each set of nodes with the domain of each node, and how many containers fit in each domain."""
        codes = self.layout.switch if level is TopologyLevel.SWITCH else np.zeros_like(self.layout.switch)
        for nodes in tier:
            known = nodes & (codes >= 0)
            yield nodes, codes, np.bincount(codes[known], weights=self.fits[known]).astype(np.int64)

    def _row(self, rows: Ints, fitting: Ints, best: Best) -> int:
        """Return the best row of those where the fewest fit; a lone container may go to any."""
        if self.workload.replicas > 1:
            rows = rows[fitting[rows] == fitting[rows].min()]
        return best(self.workload, rows)

    def _fill(self, row: int, count: int, *, one_island: bool = False) -> tuple[Placement, ...]:
        name = self.layout.nodes[row].name
        if not self.workload.gpu_milli:
            return (Placement(name),) * count
        layout = self.layout
        usable = layout.usable_for(self.workload)[row]
        gpus = [
            Gpu(
                int(column),
                int(layout.island[row, column]),
                int(self.free.milli[row, column]),
                slice=bool(layout.slices[row, column]),
            )
            for column in np.flatnonzero(usable)
        ]
        chosen = choose(gpus, self.workload.gpu_milli, count, one_island=one_island)
        states = layout.gpus[row]
        return tuple(
            Placement(name, tuple(GpuShare(states[at].uuid, states[at].index, milli) for at, milli in parts))
            for parts in chosen
        )
