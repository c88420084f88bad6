"""Fragmentation: which of the places that fit leaves the most for others.

A free GPU is lost for a kind of work that cannot use it where it is: too little of it is free, too few are free beside
it, or the node's CPU, memory or model will not do. The fragmentation of a node is what is lost of its free GPUs on
average over the typical kinds of work. The best place adds the least to it, or takes the most away; a small weight on
what is left of CPU and GPUs fills up nodes that are begun (see ADR 15 for where both come from, and for figures).
"""

from __future__ import annotations

import numpy as np

from api.scheduler.capacity import PLENTY, Flags, Free, Ints, Layout
from api.scheduler.demand import WEIGHT, Demand, Typical
from api.scheduler.snapshot import Workload
from common.gpu.share import MILLI

CANDIDATES = 256
"""So many of the fullest nodes that fit are looked at closely."""
WASTE = 2
"""What is likely to be lost of a GPU in the end weighs so much beside what is lost of the node now."""
FILL = 30
"""What the CPU of the largest node left free weighs, and its GPUs as much again, in milli-GPU lost."""


def best(layout: Layout, free: Free, demand: Demand, workload: Workload, rows: Ints) -> int:
    """Return the best of the rows, on all of which one container of the workload fits; of equal ones the first."""
    rows = _opening_none(layout, free, workload, rows)
    if len(rows) == 1:
        return int(rows[0])
    typical = demand.typical
    cost = _left(layout, free, rows) + _wasted(layout, free, typical, workload, rows)
    if len(rows) > CANDIDATES:
        # a stable order, so that of equal nodes the first by name are looked at
        chosen = np.sort(np.argsort(cost, kind="stable")[:CANDIDATES])
        rows, cost = rows[chosen], cost[chosen]
    return int(rows[np.argmin(cost + _added(layout, free.rows(rows), typical, workload, rows))])


def _opening_none(layout: Layout, free: Free, workload: Workload, rows: Ints) -> Ints:
    """Leave out the rows on which a fraction would open a GPU, if there is one on which it need not.

    Where slices are free that will do, only the rows with the smallest of them are left.
    """
    fraction = workload.gpu_milli % MILLI
    if not fraction:
        return rows
    milli = free.milli[rows]
    if layout.sliced:
        fitting = _fitting(milli, layout.usable_for(workload)[rows] & layout.slices[rows], fraction).min(axis=1)
        if fitting.min() < PLENTY:
            return np.asarray(rows[fitting == fitting.min()])
    shared = ((milli >= fraction) & (milli < MILLI) & layout.usable_for(workload)[rows]).any(axis=1)
    return rows[shared] if shared.any() else rows


def _left(layout: Layout, free: Free, rows: Ints) -> Ints:
    """Return the weight of what is free on each row."""
    cpu = np.where(free.cpu[rows] < PLENTY // 2, free.cpu[rows], 0)
    gpus = free.milli[rows].sum(axis=1)
    weight = FILL * WEIGHT
    return np.asarray(weight * cpu // layout.most_cpu + weight * gpus // (layout.most_gpus * MILLI))


def _wasted(layout: Layout, free: Free, typical: Typical, workload: Workload, rows: Ints) -> Ints:
    """Return what the GPU that a fraction takes is likely to lose in the end because of it, weighted."""
    fraction = workload.gpu_milli % MILLI
    if not fraction:
        return np.zeros(len(rows), dtype=np.int64)
    fitting = _fitting(free.milli[rows], layout.usable_for(workload)[rows], fraction).min(axis=1)
    return np.asarray(WASTE * WEIGHT * (typical.waste[fitting - fraction] - typical.waste[fitting]))


def _added(layout: Layout, before: Free, typical: Typical, workload: Workload, rows: Ints) -> Ints:
    """Return what one container of the workload adds on each row to what is lost, in milli-GPU times WEIGHT."""
    if not typical.usable:
        return np.zeros(len(rows), dtype=np.int64)  # nothing is known of any work with a GPU
    after = before.copy()
    after.cpu -= workload.cpu_milli
    after.memory -= workload.memory_mib
    whole, fraction = divmod(workload.gpu_milli, MILLI)
    usable = layout.usable_for(workload)[rows]
    if fraction:
        fullest = _fitting(before.milli, usable, fraction).argmin(axis=1)
        after.milli[np.arange(len(rows)), fullest] -= fraction
    if whole:
        empty = usable & (after.milli == MILLI)
        after.milli[empty & (empty.cumsum(axis=1) <= whole)] = 0
    usable_by = np.stack([usable[rows].T for usable in typical.usable], axis=1)
    return _lost(typical, after, usable_by) - _lost(typical, before, usable_by)


def _fitting(milli: Ints, usable: Flags, fraction: int) -> Ints:
    """Return what is free of each GPU that the fraction fits on, and more than there can be of each other."""
    return np.where(usable & (milli >= fraction), milli, PLENTY)


def _lost(typical: Typical, free: Free, usable: Flags) -> Ints:
    """Return what is lost of the free GPUs of each row; `usable` tells it by column, distinct need, and row."""
    milli = np.maximum(free.milli, 0).T.astype(np.int32)
    enough = (milli[:, None, :] >= typical.needs[:, None].astype(np.int32)) & usable
    counts = enough.sum(axis=0, dtype=np.int32)[typical.place]
    parts = np.where(enough, milli[:, None, :], 0).sum(axis=0, dtype=np.int32)[typical.place]
    fits = (
        (counts >= typical.count[:, None])
        & (free.cpu >= typical.cpu[:, None])
        & (free.memory >= typical.memory[:, None])
    )
    return np.asarray(typical.weight.sum() * milli.sum(axis=0) - typical.weight @ np.where(fits, parts, 0))
