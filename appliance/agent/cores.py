"""Which cores a container runs on. Pure but for `of_node`.

A program counts the cores that it may run on, not its quota of time. So that it starts as many threads as it was
granted cores, each container gets a set of cores. Sets may overlap where fractions were granted.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reservoir.errors import InputError

MILLI = 1000
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What the numerical libraries read that count the cores of the machine instead."""


@dataclass(frozen=True)
class CoreGrant:
    """The cores of one container and how much of them it may use together, in thousandths of a core."""

    cores: tuple[int, ...] = ()
    milli: int = 0


NO_CORES = CoreGrant()
"""No limit."""


def of_node() -> tuple[int, ...]:
    """Return the cores that this process may use, which are those that containers may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def count(milli: int) -> int:
    """Return how many cores a grant of thousandths begins."""
    return -(-milli // MILLI)


def choose(
    milli: int, cores: Sequence[int], held: Iterable[CoreGrant], near: Collection[int] = frozenset()
) -> CoreGrant:
    """Return the cores for a container that was granted `milli`, 0 for no limit.

    Cores with room come first, those `near` its GPUs before others, and the least used ones before the rest. Raises
    InputError where the node has fewer cores.
    """
    wanted = count(milli)
    if wanted > len(cores):
        raise InputError(
            f"{wanted} cores are asked for, and this node has {len(cores)}",
            where="cpu_milli",
            cure=f"ask for at most {len(cores) * MILLI} thousandths of a core, or use a larger node",
        )
    if not wanted:
        return NO_CORES
    load, each = _load(held), milli / wanted

    def rank(core: int) -> tuple[bool, bool, float, int]:
        used = load.get(core, 0.0)
        # a millionth of a core is no overload: thirds do not add up exactly
        return used + each > MILLI + 0.001, core not in near, used, core

    return CoreGrant(tuple(sorted(sorted(cores, key=rank)[:wanted])), milli)


def write(cores: Iterable[int]) -> str:
    """Return cores in the form of a cpuset: `0,3`."""
    return ",".join(map(str, cores))


def read(text: str) -> tuple[int, ...]:
    """Return the cores of a cpuset that `write` has written."""
    return tuple(int(core) for core in text.split(",") if core)


def threads(milli: int) -> dict[str, str]:
    """Return the environment that tells numerical libraries how many threads to start; none without a limit."""
    return dict.fromkeys(THREADS, str(count(milli))) if milli else {}


def _load(held: Iterable[CoreGrant]) -> Mapping[int, float]:
    load: dict[int, float] = {}
    for grant in held:
        for core in grant.cores:
            load[core] = load.get(core, 0.0) + grant.milli / len(grant.cores)
    return load
