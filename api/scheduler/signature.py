"""The scheduling signature of a workload: what decides where it fits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

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
        self._extremes: defaultdict[Signature, list[tuple[int, ...]]] = defaultdict(list)

    def add(self, workload: Workload) -> None:
        """Note what a workload asks for."""
        asked, known = self._amounts(workload), self._extremes[manner_of(workload)]
        if not _covers(known, asked):
            known[:] = [each for each in known if not _covers([asked], each)]
            known.append(asked)

    def __contains__(self, workload: Workload) -> bool:
        """Return whether the workload is covered."""
        return _covers(self._extremes.get(manner_of(workload), ()), self._amounts(workload))

    def clear(self) -> None:
        """Forget all."""
        self._extremes.clear()

    def _amounts(self, workload: Workload) -> tuple[int, ...]:
        amounts = workload.replicas, workload.gpu_milli, workload.cpu_milli, workload.memory_mib
        return tuple(self._sign * amount for amount in amounts)


def manner_of(workload: Workload) -> Signature:
    """Return the same for workloads that differ in amounts alone; whole GPUs and parts are asked for differently."""
    whole, fraction = divmod(workload.gpu_milli, MILLI)
    return (*signature_of(workload)[4:], whole > 0, fraction > 0)


def _covers(extremes: Iterable[tuple[int, ...]], asked: tuple[int, ...]) -> bool:
    return any(all(have <= want for have, want in zip(each, asked, strict=True)) for each in extremes)
