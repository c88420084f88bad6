"""Nodes as arrays: what they are, and what is free on them; one row a node, in the order of their names.

A step over every node is then one operation on an array, which keeps a decision short at 10,000 nodes. Shares are
milli-GPU. All of it is integers, so what is allocated and released leaves exactly what was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.scheduler.snapshot import MAX_CONTAINERS_PER_NODE, UNLIMITED, NodeSnapshot, Workload
from common.gpu.kinds import ALONE, Enforcement
from common.gpu.share import MILLI

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

PLENTY = 2**60
"""Stands for CPU or memory without a limit: no sum of requests comes near it."""
NO_MODEL = -1
"""Stands where a node has no GPU: for the columns beyond its last one."""
FEW_OF = 4
"""Rows are picked out where they are less than one in so many."""


class Layout:
    """What the nodes are, whatever runs on them. Columns are the GPUs of a node in the order of their index."""

    def __init__(self, nodes: Sequence[NodeSnapshot]) -> None:
        self.nodes = tuple(sorted(nodes, key=lambda node: node.name))
        self.rows = {node.name: row for row, node in enumerate(self.nodes)}
        self.gpus = tuple(tuple(sorted(node.gpus, key=lambda gpu: gpu.index)) for node in self.nodes)
        height, width = len(self.nodes), max((len(gpus) for gpus in self.gpus), default=0)
        self.models: dict[str, int] = {}
        # by column: a step over the GPUs of every node is then a few over whole columns
        self.model: Ints = np.full((height, width), NO_MODEL, dtype=np.int64, order="F")
        self.island: Ints = np.zeros((height, width), dtype=np.int64, order="F")
        self.capacity: Ints = np.zeros((height, width), dtype=np.int64, order="F")
        self.kind: Ints = np.zeros((height, width), dtype=np.int64, order="F")
        self.slices: Flags = np.zeros((height, width), dtype=np.bool_, order="F")
        for row, gpus in enumerate(self.gpus):
            for column, gpu in enumerate(gpus):
                self.model[row, column] = self.models.setdefault(gpu.model, len(self.models))
                self.island[row, column] = gpu.island
                self.capacity[row, column] = gpu.capacity_milli
                self.kind[row, column] = gpu.enforcement.rank
                self.slices[row, column] = gpu.slice
        self.alone: Flags = np.isin(self.kind.T, [kind.rank for kind in ALONE]).T
        self.any_alone = bool(self.alone.any())
        self.islands = tuple(int(island) for island in np.unique(self.island)) or (0,)
        self.present: Flags = self.model != NO_MODEL
        self.sizes = tuple(int(size) for size in np.unique(self.capacity[self.slices]))
        self.sliced = bool(self.sizes)
        self.whole: Flags = self.present & ~self.slices if self.sliced else self.present
        self.gpu_count: Ints = self.present.sum(axis=1)
        self.open = np.array([node.open for node in self.nodes], dtype=np.bool_)
        self._missing = self._of_missing_storages()
        self.unhealthy = self._of_unhealthy()
        self._lacking = {
            trait: np.array([trait in dict(node.lacks) for node in self.nodes], dtype=np.bool_)
            for trait in {trait for node in self.nodes for trait, _ in node.lacks}
        }
        self.fractions = np.array([node.fractions for node in self.nodes], dtype=np.bool_)
        self.apart = np.array([node.apart for node in self.nodes], dtype=np.bool_)
        self.any_apart = bool(self.apart.any())
        self.protocol: Ints = np.array([node.protocol for node in self.nodes], dtype=np.int64)
        self.switches = tuple(sorted({node.switch for node in self.nodes} - {""}))
        codes = {name: code for code, name in enumerate(self.switches)}
        self.switch: Ints = np.array([codes.get(node.switch, -1) for node in self.nodes], dtype=np.int64)
        self.group_names = tuple(sorted({group for node in self.nodes for group in node.groups}))
        self.groups = {
            name: np.array([name in node.groups for node in self.nodes], dtype=np.bool_) for name in self.group_names
        }
        self.ungrouped = np.array([not node.groups for node in self.nodes], dtype=np.bool_)
        self.orphaned = self._of_orphaned()
        self.shared_of_node: Ints = np.maximum(self.capacity - self.orphaned, 0).sum(axis=1)
        self.foreign_cpu: Ints = np.array([node.foreign_cpu_milli for node in self.nodes], dtype=np.int64)
        self.foreign_memory: Ints = np.array([node.foreign_memory_mib for node in self.nodes], dtype=np.int64)
        self.empty = Free.of(self)
        limited = self.empty.cpu[self.empty.cpu < PLENTY]
        self.most_cpu = int(limited.max(initial=1))
        self.most_gpus = max(width, 1)
        self.all_fractions = bool(self.fractions.all())
        self.allowed: dict[tuple[tuple[str, ...] | None, bool, tuple[str, ...]], Flags] = {}
        """What `topology.allowed` found."""
        self._usable: dict[frozenset[int], Flags] = {}
        self._gpus_for: dict[tuple[object, ...], Flags] = {}

    def replace(self, nodes: Sequence[NodeSnapshot]) -> bool:
        """Open and close nodes, to all or to some; returns False, and changes nothing, where they differ in more."""
        nodes = tuple(sorted(nodes, key=lambda node: node.name))
        if len(nodes) != len(self.nodes):
            return False
        changed = [(row, new) for row, (old, new) in enumerate(zip(self.nodes, nodes, strict=True)) if new is not old]
        if any(replace(new, **_changing(self.nodes[row])) != self.nodes[row] for row, new in changed):
            return False
        for row, new in changed:
            self.open[row] = new.open
        self.nodes = nodes
        self._missing = self._of_missing_storages()
        self.unhealthy = self._of_unhealthy()
        return True

    def _of_orphaned(self) -> Ints:
        held = np.zeros_like(self.capacity)
        for row, node in enumerate(self.nodes):
            for share in node.orphaned:
                if (column := self.column(row, share.uuid, share.index)) is not None:
                    held[row, column] += self.taken(row, column, share.milli)
        return held

    def _of_unhealthy(self) -> tuple[int, ...]:
        return tuple(row for row, node in enumerate(self.nodes) if node.unhealthy)

    def takes(self, workload: Workload) -> Flags:
        """Return which nodes are open, have the storages that the workload mounts, and know all that it asks for."""
        takes = self.open & self.has_storages(workload) if self._missing else self.open
        return takes & self.speaks(workload) if workload.protocol else takes

    def has_storages(self, workload: Workload) -> Flags:
        """Return which nodes have the storages that the workload mounts."""
        missing = [self._missing[name] for name in workload.storages if name in self._missing]
        return ~np.logical_or.reduce(missing) if missing else np.ones(len(self.nodes), bool)

    def has_traits(self, workload: Workload) -> Flags:
        """Return which nodes lack none of the traits that the workload needs."""
        lacking = [self._lacking[trait] for trait in workload.traits if trait in self._lacking]
        return ~np.logical_or.reduce(lacking) if lacking else np.ones(len(self.nodes), bool)

    def speaks(self, workload: Workload) -> Flags:
        """Return which nodes have agents that know all that the workload asks for."""
        return self.protocol >= workload.protocol

    def _of_missing_storages(self) -> dict[str, Flags]:
        """Return by the name of each storage that a node lacks which nodes lack it."""
        names = {name for node in self.nodes for name in node.missing_storages}
        return {name: np.array([name in node.missing_storages for node in self.nodes]) for name in names}

    def usable(self, models: tuple[str, ...]) -> Flags:
        """Return which GPUs, slices aside, are of one of the models; every GPU where none is named."""
        return self.of_models(models) & self.whole if self.sliced else self.of_models(models)

    def usable_for(self, workload: Workload) -> Flags:
        """Return which GPUs and slices a container of the workload may have, or have a part of, once they are free.

        Slices are only for what asks for less than a GPU, and for no more than they are. Where there are none, all GPUs
        may be shared and no kind of enforcement is asked for, these are the GPUs of its models.
        """
        part = workload.gpu_milli % MILLI
        any_kind = workload.enforcement is Enforcement.NONE and not (self.any_alone and is_mixed(workload))
        if any_kind and not self.sliced and (self.all_fractions or not part):
            return self.of_models(workload.gpu_models)
        small = workload.on_slices and 0 < workload.gpu_milli < MILLI
        least = next((size for size in self.sizes if size >= workload.gpu_milli), 0) if small else 0
        codes = frozenset(self.models[name] for name in workload.gpu_models if name in self.models)
        key = (codes, bool(workload.gpu_models), workload.enforcement, bool(part), is_mixed(workload), least)
        if key not in self._gpus_for:
            found = self.whole & self.fractions[:, None] if part else self.whole
            if least:
                found = found | (self.slices & (self.capacity >= least))
            self._gpus_for[key] = self.of_models(workload.gpu_models) & found & self.holds(workload)
        return self._gpus_for[key]

    def holds(self, workload: Workload) -> Flags:
        """Return which GPUs and slices hold shares as firmly as the workload asks, and beside others if it has some."""
        key: tuple[object, ...] = workload.enforcement, is_mixed(workload)
        if key not in self._gpus_for:
            firm = self.kind <= workload.enforcement.rank
            self._gpus_for[key] = firm & ~self.alone if is_mixed(workload) else firm
        return self._gpus_for[key]

    def taken(self, row: int, column: int, milli: int) -> int:
        """Return what a share takes of a GPU: all of a slice, whatever was asked for."""
        return int(self.capacity[row, column]) if self.slices[row, column] else milli

    def of_models(self, models: tuple[str, ...]) -> Flags:
        """Return which GPUs and slices are of one of the models; all where none is named."""
        if not models:
            return self.present
        # by what there is of them, so that made-up names take no memory
        codes = frozenset(self.models[name] for name in models if name in self.models)
        if codes not in self._usable:
            self._usable[codes] = np.isin(self.model.T, list(codes)).T
        return self._usable[codes]

    def column(self, row: int, uuid: str, index: int) -> int | None:
        """Return the column of a GPU of a node, or None where the node has it no more."""
        gpus = self.gpus[row]
        if 0 <= index < len(gpus) and gpus[index].uuid == uuid:
            return index
        return next((column for column, gpu in enumerate(gpus) if gpu.uuid == uuid), None)


@dataclass(slots=True)
class Free:
    """What is free on the nodes. Where more is held than there is, it is negative."""

    milli: Ints
    cpu: Ints
    memory: Ints
    containers: Ints

    @classmethod
    def of(cls, layout: Layout) -> Free:
        """Return what is free when nothing runs."""
        nodes = layout.nodes
        return cls(
            layout.capacity.copy(order="K"),
            np.array([_or_plenty(node.cpu_milli) for node in nodes], dtype=np.int64),
            np.array([_or_plenty(node.memory_mib) for node in nodes], dtype=np.int64),
            np.full(len(nodes), MAX_CONTAINERS_PER_NODE, dtype=np.int64),
        )

    def copy(self) -> Free:
        """Return the same in arrays of its own."""
        return Free(self.milli.copy(order="K"), self.cpu.copy(), self.memory.copy(), self.containers.copy())

    def rows(self, rows: Ints | slice) -> Free:
        """Return some rows, in arrays of their own where they are named one by one."""
        return Free(self.milli[rows], self.cpu[rows], self.memory[rows], self.containers[rows])


def is_mixed(workload: Workload) -> bool:
    """Return whether a container of it has a part of a GPU beside whole ones."""
    return workload.gpu_milli > MILLI and workload.gpu_milli % MILLI > 0


def fitting(layout: Layout, free: Free, workload: Workload, nodes: Flags) -> Ints:
    """Return how many containers of the workload fit on each of these nodes; exact up to all of them.

    On others none does. The GPUs of a container may be anywhere on its node.
    """
    rows = few(nodes)
    found = _fitting(layout, free, workload, rows)
    if isinstance(rows, slice):
        found[~nodes] = 0
        return found
    everywhere = np.zeros(len(nodes), dtype=np.int64)
    everywhere[rows] = found
    return everywhere


def few(nodes: Flags) -> Ints | slice:
    """Return the rows of nodes where they are few among all; else all rows, of which no copies are made."""
    return np.flatnonzero(nodes) if np.count_nonzero(nodes) * FEW_OF < len(nodes) else slice(None)


def _fitting(layout: Layout, free: Free, workload: Workload, rows: Ints | slice) -> Ints:
    fitting = bare_fitting(free, workload, rows)
    apart = layout.apart[rows]
    if workload.gpu_milli:
        usable, milli = layout.usable_for(workload)[rows], free.milli[rows]
        if workload.replicas == 1:
            np.minimum(fitting, gpu_fits(milli, usable, workload.gpu_milli), out=fitting)
        else:
            np.minimum(fitting, gpu_fitting(milli, usable, layout.slices[rows], workload.gpu_milli), out=fitting)
        if layout.any_apart:
            np.minimum(fitting, island_fitting(layout, free, workload, rows), out=fitting, where=apart)
    if layout.any_apart and workload.replicas > 1:
        fitting[apart] = 0
    return fitting


def island_fitting(layout: Layout, free: Free, workload: Workload, rows: Ints | slice = slice(None)) -> Ints:
    """Return how many containers of the workload fit on the GPUs of one island, the best island of each of the rows.

    Of a lone container no more than one is counted.
    """
    milli, slices = free.milli[rows], layout.slices[rows]
    usable, of = layout.usable_for(workload)[rows], layout.island[rows]
    islands = [usable & (of == island) for island in layout.islands]
    if workload.replicas == 1:
        return np.asarray(
            np.logical_or.reduce([gpu_fits(milli, island, workload.gpu_milli) for island in islands])
        ).astype(np.int64)
    fits = [gpu_fitting(milli, island, slices, workload.gpu_milli) for island in islands]
    return np.asarray(np.maximum.reduce(fits))


def bare_fitting(free: Free, workload: Workload, rows: Ints | slice = slice(None)) -> Ints:
    """Return how many containers of the workload each of the rows has CPU, memory and places for."""
    fitting = free.containers[rows].copy()
    if workload.cpu_milli:
        np.minimum(fitting, free.cpu[rows] // workload.cpu_milli, out=fitting)
    if workload.memory_mib:
        np.minimum(fitting, free.memory[rows] // workload.memory_mib, out=fitting)
    return np.maximum(fitting, 0, out=fitting)


def gpu_fits(milli: Ints, usable: Flags, wanted: int) -> Flags:
    """Return whether a share fits into each row of GPUs; the same as `gpu_fitting` above 0, and faster."""
    whole, fraction = divmod(wanted, MILLI)
    if not whole:
        return np.asarray(((milli >= fraction) & usable).any(axis=1))
    free_gpus: Ints = np.count_nonzero((milli == MILLI) & usable, axis=1)
    if not fraction:
        return free_gpus >= whole
    in_shared = ((milli >= fraction) & (milli < MILLI) & usable).any(axis=1)
    return np.asarray(free_gpus + in_shared > whole)


def gpu_fitting(milli: Ints, usable: Flags, slices: Flags, wanted: int) -> Ints:
    """Return how often a share fits into each row of GPUs; exact, because copies of one share pack without a rest."""
    whole, fraction = divmod(wanted, MILLI)
    free_gpus: Ints = ((milli == MILLI) & usable).sum(axis=1)
    if not fraction:
        return free_gpus // whole
    pieces = np.where(usable, np.maximum(milli, 0) // fraction, 0)
    if not whole:
        return np.asarray(np.where(slices, np.minimum(pieces, 1), pieces).sum(axis=1))
    in_shared = np.where(milli < MILLI, pieces, 0).sum(axis=1)
    in_one = MILLI // fraction
    times = np.zeros(len(milli), dtype=np.int64)
    for count in range(1, milli.shape[1] // whole + 1):
        opened = np.maximum(count - in_shared + in_one - 1, 0) // in_one
        times[count * whole + opened <= free_gpus] = count
    return times


def _changing(node: NodeSnapshot) -> dict[str, Any]:
    """Return what of a node may change without anything being counted anew."""
    return {name: getattr(node, name) for name in ("open", "missing_storages", "unhealthy", "mode")}


def _or_plenty(amount: int) -> int:
    return PLENTY if amount == UNLIMITED else amount
