"""What a program that computes tells the process that judges it: numbers in a file that both have mapped.

The judge reads them by its own clock, so no program says itself how long it took.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

PARTS = 4


class Counters(ctypes.Structure):
    """One program. `ready` it sets itself, `go`, `pause` and `longest_ns` (back to 0) the judge.

    `done` are launches of each part that have ended, `steps` whole steps, `working_ns` the time that these took.
    """

    _fields_ = (
        ("ready", ctypes.c_uint64),
        ("go", ctypes.c_uint64),
        ("pause", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("working_ns", ctypes.c_uint64),
        ("longest_ns", ctypes.c_uint64),
        ("done", ctypes.c_uint64 * PARTS),
    )

    ready: int
    go: int
    pause: int
    steps: int
    working_ns: int
    longest_ns: int
    done: ctypes.Array[ctypes.c_uint64]


def open_counters(path: Path) -> Counters:
    """Map the counters of a file, which is made where it is missing."""
    with path.open("a+b") as file:
        if file.seek(0, 2) < ctypes.sizeof(Counters):
            file.truncate(ctypes.sizeof(Counters))
        return Counters.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Counters)))
