"""Where a workload fits best: its pool, its domain of the network, its nodes, and the GPUs on each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from api.scheduler.capacity import Flags, Free, Ints, Layout, island_room, room
from api.scheduler.gpus import Gpu, choose
from api.scheduler.snapshot import Placement, Share, Within, Workload
from api.scheduler.topology import levels, merged, pools

Rank = Callable[[Workload, Ints], Ints]
"""Ranks rows of nodes that fit one container of a workload: the lower, the better; see `fragmentation`."""


class Search:
    """A look for places for one workload, on the nodes given. It changes nothing."""

    def __init__(self, layout: Layout, free: Free, workload: Workload, nodes: Flags | None = None) -> None:
        self.layout, self.free, self.workload = layout, free, workload
        self.fits = room(layout, free, workload)  # how many containers each node has room for
        if nodes is not None:
            self.fits[~nodes] = 0

    def place(self, rank: Rank) -> tuple[Placement, ...] | None:
        """Return the best places for all containers, or None where they do not fit together.

        Groups are tried in the order of preference, in each the smallest domain first; equal places by name.
        """
        if not self.fits.any():
            return None
        for tier in pools(self.layout, self.workload):
            for level in levels(self.workload):
                if level in (Within.ISLAND, Within.NODE):
                    found = self._on_one(level, merged(tier), rank)
                else:
                    found = self._on_several(level, tier, rank)
                if found:
                    return found
        return None

    def most(self) -> int:
        """Return how many containers fit together where the workload may lie, counted up to all of them."""
        most = 0
        for tier in pools(self.layout, self.workload):
            for level in levels(self.workload):
                if level in (Within.ISLAND, Within.NODE):
                    sums = [self._room(level, merged(tier))]
                else:
                    sums = [sums for _, _, sums in self._domains(level, tier)]
                most = max(most, *(int(each.max(initial=0)) for each in sums))
        return min(most, self.workload.containers)

    def _on_one(self, level: Within, nodes: Flags, rank: Rank) -> tuple[Placement, ...] | None:
        """Place all containers on one node: the one with the least room that suffices, then the best of rank."""
        sums = self._room(level, nodes)
        rows = np.flatnonzero(sums >= self.workload.containers)
        if not len(rows):
            return None
        return self._fill(self._best(rows, sums, rank), self.workload.containers, one_island=level is Within.ISLAND)

    def _on_several(self, level: Within, tier: Sequence[Flags], rank: Rank) -> tuple[Placement, ...] | None:
        """Place the containers on as few nodes as possible of the tightest domain."""
        best: tuple[int, Flags] | None = None
        for pool, codes, sums in self._domains(level, tier):
            for code in np.flatnonzero(sums >= self.workload.containers):
                if best is None or sums[code] < best[0]:
                    best = int(sums[code]), pool & (codes == code)
        if best is None:
            return None
        left, room = self.workload.containers, np.where(best[1], self.fits, 0)
        placements: list[Placement] = []
        while left:
            rows = np.flatnonzero(room >= min(left, room.max()))
            row = self._best(rows, room, rank)
            count = min(left, int(room[row]))
            placements += self._fill(row, count)
            left, room[row] = left - count, 0
        return tuple(placements)

    def _room(self, level: Within, nodes: Flags) -> Ints:
        inside = np.where(nodes, self.fits, 0)
        if level is Within.ISLAND:
            np.minimum(inside, island_room(self.layout, self.free, self.workload), out=inside)
        return inside

    def _domains(self, level: Within, tier: Sequence[Flags]) -> Iterator[tuple[Flags, Ints, Ints]]:
        """Yield each pool with the domain of each node, and how many containers fit in each domain."""
        codes = self.layout.switch if level is Within.SWITCH else np.zeros_like(self.layout.switch)
        for pool in tier:
            known = pool & (codes >= 0)
            yield pool, codes, np.bincount(codes[known], weights=self.fits[known]).astype(np.int64)

    def _best(self, rows: Ints, room: Ints, rank: Rank) -> int:
        """Return the row with the least room; a lone container goes by rank alone."""
        if self.workload.containers > 1:
            rows = rows[room[rows] == room[rows].min()]
        return int(rows[np.argmin(rank(self.workload, rows))])

    def _fill(self, row: int, count: int, *, one_island: bool = False) -> tuple[Placement, ...]:
        name = self.layout.nodes[row].name
        if not self.workload.gpu_milli:
            return (Placement(name),) * count
        usable = self.layout.usable(self.workload.models)[row]
        gpus = [
            Gpu(int(column), int(self.layout.island[row, column]), int(self.free.milli[row, column]))
            for column in np.flatnonzero(usable)
        ]
        chosen = choose(gpus, self.workload.gpu_milli, count, one_island=one_island)
        states = self.layout.gpus[row]
        return tuple(
            Placement(name, tuple(Share(states[column].index, states[column].uuid, milli) for column, milli in parts))
            for parts in chosen
        )
