"""Phrases of which reasons are made: amounts with their units, and several names as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from common.gpu.share import MILLI, format_gpus
from common.sentence import Sentence, Several

IN_USE = Sentence("every GPU in service that it may use is in use")
IN_USE_IN_PART = Sentence("every GPU in service that it may use in part is in use")


@lru_cache(maxsize=4096)
def gpus(milli: int) -> str:
    """Return a share with its unit."""
    if milli > MILLI:
        return Sentence("{gpus} GPUs", gpus=format_gpus(milli))
    return Sentence("{gpus} GPU", gpus=format_gpus(milli))


@lru_cache(maxsize=4096)
def cpus(milli: int) -> str:
    """Return thousandths of a core with their unit."""
    if milli == 1000:
        return Sentence("{cpus} CPU", cpus="1")
    return Sentence("{cpus} CPUs", cpus=f"{milli / 1000:g}")


def memory(mib: int) -> str:
    """Return an amount of memory with its unit."""
    return Sentence("{mib} MiB of memory", mib=mib)


def without_gpus(cpu_milli: int, memory_mib: int) -> str:
    """Return cores and memory with their units."""
    return Sentence("{cpus} CPUs and {mib} MiB of memory", cpus=f"{cpu_milli / 1000:g}", mib=memory_mib)


def some(names: Sequence[str], most: int) -> str:
    """Return several names, or the first of them and how many more there are."""
    if len(names) <= most:
        return together(names)
    return Sentence("{names} and {count} more", names=Several(names[:most]), count=len(names) - most)


def both(first: str, second: str) -> str:
    """Return two sentences as one."""
    return Sentence("{first}; {second}", first=first, second=second)


def either(names: Sequence[str]) -> str:
    """Return several names, of which any will do."""
    if len(names) == 1:
        return names[0]
    return Sentence("{names} or {name}", names=Several(names[:-1]), name=names[-1])


def together(names: Sequence[str]) -> str:
    """Return several names, all of which are meant."""
    if len(names) == 1:
        return names[0]
    return Sentence("{names} and {name}", names=Several(names[:-1]), name=names[-1])
