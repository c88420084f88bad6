"""The scheduling signature of a workload: what decides where it fits."""

from __future__ import annotations

import numpy as np

from api.scheduler.capacity import Ints
from api.scheduler.snapshot import Workload
from common.gpu.share import MILLI

Signature = tuple[object, ...]


def signature_of(workload: Workload) -> Signature:
    """Return the same for workloads that fit in the same places, whoever owns them."""
    return (
        workload.replicas,
        workload.gpu_milli,
        workload.cpu_milli,
        workload.memory_mib,
        workload.groups,
        workload.grouped_only,
        workload.gpu_models,
        workload.within,
        workload.within_required,
        workload.enforcement,
        workload.storages,
        workload.traits,
        workload.on_slices,
        workload.protocol,
    )


class Frontier:
    """Amounts that were asked for, of each manner of asking the extreme ones alone.

    With `least` it covers what asks for no less in the same manner: where those found no place, it finds none. Without,
    it covers what asks for no more: where those fit, it fits.
    """

    def __init__(self, *, least: bool) -> None:
        self._sign = 1 if least else -1
        # one row for each: many who ask for more of the one and less of the other are still looked through at once
        self._extremes: dict[Signature, Ints] = {}

    def add(self, workload: Workload) -> None:
        """Note what a workload asks for."""
        asked, manner = self._amounts(workload), manner_of(workload)
        known = self._extremes.get(manner, asked[:0])
        if not _covers(known, asked):
            self._extremes[manner] = np.vstack((known[~(known >= asked).all(axis=1)], asked))

    def __contains__(self, workload: Workload) -> bool:
        """Return whether the workload is covered."""
        known = self._extremes.get(manner_of(workload))
        return known is not None and _covers(known, self._amounts(workload))

    def clear(self) -> None:
        """Forget all."""
        self._extremes.clear()

    def _amounts(self, workload: Workload) -> Ints:
        amounts = workload.replicas, workload.gpu_milli, workload.cpu_milli, workload.memory_mib
        return self._sign * np.array([amounts], dtype=np.int64)


def manner_of(workload: Workload) -> Signature:
    """Return the same for workloads that differ in amounts alone; whole GPUs and parts are asked for differently."""
    whole, fraction = divmod(workload.gpu_milli, MILLI)
    return (*signature_of(workload)[4:], whole > 0, fraction > 0)


def _covers(known: Ints, asked: Ints) -> bool:
    return bool((known <= asked).all(axis=1).any())
