"""GPUs of one node that a share takes: fractions fill up GPUs that are shared already, islands stay whole.

A part of a GPU takes the smallest slice that is free and large enough, if there is one, and takes all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from common.gpu.share import MILLI

Parts = tuple[tuple[int, int], ...]
"""What one container takes: columns of GPUs, each with its milli-GPU."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that a container may take, with what is free of it; of a `slice` all of it is taken."""

    column: int
    island: int
    free: int
    slice: bool = False


def choose(gpus: Sequence[Gpu], milli: int, count: int, *, one_island: bool) -> tuple[Parts, ...]:
    """Return the GPUs for `count` containers, all in one island where that is asked; they must fit.

    Each container keeps to one island where it can. Only where the node is then too small for all do they not.
    """
    if one_island:
        sets = [chosen for island in _islands(gpus) if (chosen := _repeat(island, milli, count))]
        return min(sets, key=lambda chosen: _left(gpus, chosen))
    chosen = _repeat(gpus, milli, count) or _repeat([replace(gpu, island=0) for gpu in gpus], milli, count)
    if chosen is None:
        raise ValueError(f"{count} times {milli} milli-GPU do not fit on {list(gpus)}")
    return chosen


def _repeat(gpus: Sequence[Gpu], milli: int, count: int) -> tuple[Parts, ...] | None:
    """Give one container after the other its best place; None where they do not all fit that way."""
    chosen: list[Parts] = []
    for left in range(count, 0, -1):
        parts = _one(gpus, milli)
        if parts is None:
            return None
        chosen.append(parts)
        if left > 1:
            taken = dict(parts)
            gpus = [replace(gpu, free=gpu.free - taken.get(gpu.column, 0)) for gpu in gpus]
    return tuple(chosen)


def _one(gpus: Sequence[Gpu], milli: int) -> Parts | None:
    """Return the best place of one share: in one island, opening no GPU, filling one up, in the smallest island."""
    ranked = [found for island in _islands(gpus) if (found := _take(island, milli))]
    if ranked:
        return min(ranked)[1]
    # the fullest islands first, so that it spans as few as possible
    spread = sorted(gpus, key=lambda gpu: -sum(other.free for other in gpus if other.island == gpu.island))
    found = _take(spread, milli)
    return found[1] if found else None


def _take(gpus: Sequence[Gpu], milli: int) -> tuple[tuple[int, int, int], Parts] | None:
    """Return a place among the GPUs, in their order, and its rank: GPU opened, room beside it, whole GPUs left."""
    whole, fraction = divmod(milli, MILLI)
    parts: list[tuple[int, int]] = []
    opened = beside = 0
    if fraction:
        fitting = (gpu for gpu in gpus if gpu.free >= fraction)
        shared = min(fitting, key=lambda gpu: (not gpu.slice, gpu.free), default=None)
        if shared is None:
            return None
        parts.append((shared.column, shared.free if shared.slice else fraction))
        opened, beside = -1 if shared.slice else int(shared.free == MILLI), shared.free - fraction
    free = [gpu.column for gpu in gpus if gpu.free == MILLI and (gpu.column, fraction) not in parts]
    if len(free) < whole:
        return None
    parts += [(column, MILLI) for column in free[:whole]]
    return (opened, beside, len(free) - whole), tuple(sorted(parts))


def _islands(gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    ordered = sorted(gpus, key=lambda gpu: (gpu.island, gpu.column))
    return [list(island) for _, island in groupby(ordered, key=lambda gpu: gpu.island)]


def _left(gpus: Sequence[Gpu], chosen: tuple[Parts, ...]) -> int:
    """Return what the island that was chosen had free."""
    home = next(gpu.island for gpu in gpus if gpu.column == chosen[0][0][0])
    return sum(gpu.free for gpu in gpus if gpu.island == home)
