"""Shortage: the least of what was asked for in vain that there is no room for either.

It stands for all that lack the same, whatever they ask for beside: a thousand requests, of which none asks for no less
than another, then cost no more than equal ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from api.scheduler.capacity import Flags, Free, Ints, Layout
from api.scheduler.placement import Search
from api.scheduler.snapshot import Workload
from api.scheduler.topology import allowed


def lacking(layout: Layout, free: Free, workload: Workload) -> Workload:
    """Return the least of a workload without a place that has none: of one container, where there is none for that."""
    takes = layout.takes(workload) & allowed(layout, workload)
    bare = replace(workload, replicas=1, cpu_milli=0, memory_mib=0)
    there = Search(layout, free, bare, takes).fits > 0
    with_memory = there & _has(free.memory, workload.memory_mib)
    if (with_memory & _has(free.cpu, workload.cpu_milli)).any():
        together = replace(workload, cpu_milli=0, memory_mib=0)
        fits = Search(layout, free, together, takes).most() >= workload.replicas
        return workload if fits else together
    cpu_milli = _too_much(free.cpu[with_memory], workload.cpu_milli)
    memory_mib = _too_much(free.memory[there & _has(free.cpu, cpu_milli)], workload.memory_mib)
    return replace(bare, cpu_milli=cpu_milli, memory_mib=memory_mib)


def fitting_most(layout: Layout, workload: Workload) -> Workload | None:
    """Return the most of a workload that fits on empty nodes where it does itself; None where it does not."""
    empty = layout.empty
    found = Search(layout, empty, workload).where(lambda _, rows: int(rows[0]))
    if found is None:
        return None
    rows, counts = np.array(found[1], dtype=np.int64).T
    cpu_milli, memory_mib = (int((amount[rows] // counts).min()) for amount in (empty.cpu, empty.memory))
    return replace(workload, cpu_milli=cpu_milli, memory_mib=memory_mib)


def _has(free: Ints, amount: int) -> Flags:
    """Return where so much is free; what asks for none is refused nowhere, not even where too much is held."""
    return free >= amount if amount else np.ones(len(free), dtype=np.bool_)


def _too_much(free: Ints, asked: int) -> int:
    """Return the least that nobody has free of these who have less than is asked for; nothing where there is nobody."""
    return min(asked, max(1, int(free.max()) + 1)) if len(free) else 0
