"""A sample of a GPU as one number of 63 bits, written and read by PostgreSQL.

From the lowest bit on: the second of the hour (12 bits), the thousandths of the time in which the GPU was busy (11),
the processes (16), and the memory in MiB (24). What is more than its bits hold is the most that they do.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, cast, func, literal

HOUR_S = 3600
_SECOND, _BUSY, _PROCESSES, _MEMORY = (0, 12), (12, 11), (23, 16), (39, 24)
"""The lowest bit of each part, and its bits."""
_UNKNOWN = 2047
"""How busy it was where nobody can tell."""


def packed(
    at_s: ColumnElement[int],
    memory_mib: ColumnElement[int],
    busy_permille: ColumnElement[Any],
    processes: ColumnElement[int],
) -> ColumnElement[int]:
    """The number of a sample; `at_s` is its moment, in seconds since 1970."""
    busy = func.coalesce(busy_permille, _UNKNOWN)
    parts = ((at_s % HOUR_S, _SECOND), (busy, _BUSY), (processes, _PROCESSES), (memory_mib, _MEMORY))
    # each part times its lowest bit: the sum has them beside each other
    numbers = (
        cast(func.least(value, (1 << bits) - 1), BigInteger) * literal(1 << lowest, BigInteger)
        for value, (lowest, bits) in parts
    )
    return reduce(add, numbers)


def second(sample: ColumnElement[int]) -> ColumnElement[int]:
    """The second of its hour at which a sample was taken."""
    return _part(sample, _SECOND)


def memory_mib(sample: ColumnElement[int]) -> ColumnElement[int]:
    """The memory that was used, in MiB."""
    return _part(sample, _MEMORY)


def busy_permille(sample: ColumnElement[int]) -> ColumnElement[Any]:
    """The thousandths of its time in which a GPU was busy, NULL where nobody can tell."""
    return func.nullif(_part(sample, _BUSY), _UNKNOWN)


def processes(sample: ColumnElement[int]) -> ColumnElement[int]:
    """How many processes were on a GPU."""
    return _part(sample, _PROCESSES)


def _part(sample: ColumnElement[int], where: tuple[int, int]) -> ColumnElement[int]:
    lowest, bits = where
    return cast(sample.bitwise_rshift(lowest).bitwise_and((1 << bits) - 1), Integer)
