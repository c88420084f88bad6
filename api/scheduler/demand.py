"""Demand: the kinds of work that the cluster is asked for, learned from what runs and waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import NamedTuple

import numpy as np

from api.scheduler.capacity import PLENTY, Flags, Ints, Layout
from api.scheduler.snapshot import Workload
from common.gpu.share import MILLI

TYPICAL = 48
"""So many of the most frequent kinds stand for all; the rest of a real trace is a few per cent."""
WEIGHT = 1 << 16
"""What the weights of the typical kinds come to together, but for rounding."""
EXPECTED = ((250, 4), (500, 4), (750, 4), (1000, 12), (2000, 4), (4000, 2), (8000, 2))
"""What is expected before anything was seen: shares in milli-GPU, and how many containers of each."""
USUAL = (7, 10)
"""The part of a GPU's share of the cluster's CPU and memory that work usually asks for with it."""


class DemandKind(NamedTuple):
    """A container as far as it matters for packing."""

    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    gpu_models: tuple[str, ...] = ()

    @classmethod
    def of(cls, workload: Workload) -> DemandKind:
        """Return the kind of a workload's containers."""
        return cls(workload.gpu_milli, workload.cpu_milli, workload.memory_mib, workload.gpu_models)


@dataclass(frozen=True)
class Typical:
    """The typical kinds as arrays. A kind needs `count` GPUs with `need` milli-GPU free on each."""

    weight: Ints
    cpu: Ints
    memory: Ints
    need: Ints
    count: Ints
    usable: tuple[Flags, ...]
    """By `place`: which GPUs are of the kind's models."""
    place: Ints
    """For each kind its row in `needs`, the distinct pairs of need and models."""
    needs: Ints

    fractions: tuple[tuple[int, int], ...]
    """The sizes below one GPU, in milli-GPU, each with how many containers come for one of it."""

    @cached_property
    def waste(self) -> Ints:
        """What a GPU with so much left, in milli-GPU, is likely to lose in the end, by what is left.

        The fractions that are asked for fill it as well as they can. To wait for one costs as much as it is rare: one
        milli-GPU for each container that comes meanwhile.
        """
        lost = list(range(MILLI + 1))
        step = gcd(MILLI, *(size for size, _ in self.fractions))
        for left in range(0, MILLI + 1, step):
            filled = [lost[left - size] + rarity for size, rarity in self.fractions if size <= left]
            lost[left] = min(left, *filled) if filled else left
        return np.array(lost, dtype=np.int64)


class Demand:
    """Counts kinds of containers. It depends on what is counted now alone, not on how it came about."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._counts: Counter[DemandKind] = Counter(_expected(layout))
        self._typical: Typical | None = None

    def count(self, workload: Workload, containers: int) -> None:
        """Count containers of a workload in, or out where the number is negative."""
        kind = DemandKind.of(workload)
        self._counts[kind] += containers
        if not self._counts[kind]:
            del self._counts[kind]
        self._typical = None

    def counts(self) -> dict[DemandKind, int]:
        """Return how many containers there are of each kind."""
        return dict(self._counts)

    @property
    def typical(self) -> Typical:
        """The most frequent kinds, and what part of all each is."""
        if self._typical is None:
            gpu_work = [item for item in self._counts.items() if item[0].gpu_milli]
            frequent = sorted(gpu_work, key=lambda item: (-item[1], item[0]))[:TYPICAL]
            self._typical = _arrays(self._layout, frequent)
        return self._typical


def _expected(layout: Layout) -> dict[DemandKind, int]:
    gpus = int(layout.gpu_count.sum())
    if not gpus:
        return {}
    limited = [
        int(amount[(layout.gpu_count > 0) & (amount < PLENTY)].sum()) * USUAL[0] // (USUAL[1] * gpus)
        for amount in (layout.empty.cpu, layout.empty.memory)
    ]
    return {
        DemandKind(milli, limited[0] * milli // MILLI, limited[1] * milli // MILLI): containers
        for milli, containers in EXPECTED
    }


def _arrays(layout: Layout, frequent: Sequence[tuple[DemandKind, int]]) -> Typical:
    kinds = [kind for kind, _ in frequent]
    total = max(sum(count for _, count in frequent), 1)
    pairs = [(min(kind.gpu_milli, MILLI), kind.gpu_models) for kind in kinds]
    places = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
    sizes: Counter[int] = Counter()
    for kind, containers in frequent:
        if kind.gpu_milli < MILLI:
            sizes[kind.gpu_milli] += containers
    return Typical(
        weight=np.array([count * WEIGHT // total for _, count in frequent], dtype=np.int64),
        cpu=np.array([kind.cpu_milli for kind in kinds], dtype=np.int64),
        memory=np.array([kind.memory_mib for kind in kinds], dtype=np.int64),
        need=np.array([need for need, _ in pairs], dtype=np.int64),
        count=np.array([-(-kind.gpu_milli // MILLI) for kind in kinds], dtype=np.int64),
        usable=tuple(layout.usable(models) for _, models in places),
        place=np.array([places[pair] for pair in pairs], dtype=np.int64),
        needs=np.array([need for need, _ in places], dtype=np.int64),
        fractions=tuple((size, total // containers) for size, containers in sorted(sizes.items())),
    )
