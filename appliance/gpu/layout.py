"""The two files of a container's GPU shares, byte for byte as `shim/layout.h` describes them. Pure.

Times are ns of CLOCK_MONOTONIC, sizes are bytes, all numbers little-endian.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import NamedTuple

from appliance.gpu.timetable import Window
from common.gpu.kinds import Compute

LIMITS_MAGIC = b"PSGPULIM"
ACCOUNT_MAGIC = b"PSGPUACC"
VERSION = 1
GPUS = 16
UUID_BYTES = 64
SLOTS = 1023
INTERVALS = 128
USED_MASK = (1 << 44) - 1
"""Bits of `TotalRecord.used` that count bytes; those above tell who made the last change."""

ENDLESS_NS = 10_000_000_000
"""After so long a piece of work counts as one that may never end."""

COMPUTE = {Compute.OFF: 0, Compute.STRICT: 1, Compute.FAIR: 2}
_MODES = {number: mode for mode, number in COMPUTE.items()}


class TimetableRecord(ctypes.LittleEndianStructure):
    """`struct psg_timetable`."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("from_ns", "epoch_ns", "period_ns", "offset_ns", "length_ns")]


class LimitRecord(ctypes.LittleEndianStructure):
    """`struct psg_limit`."""

    _fields_ = [
        ("uuid", ctypes.c_char * UUID_BYTES),
        ("memory_bytes", ctypes.c_uint64),
        ("milli", ctypes.c_uint32),
        ("compute", ctypes.c_uint32),
        ("timetable", TimetableRecord * 2),
    ]


class FirstLimitsRecord(ctypes.LittleEndianStructure):
    """`struct psg_limits` up to its fallbacks, which the first files did not have."""

    _fields_ = [
        ("magic", ctypes.c_char * 8),
        ("version", ctypes.c_uint32),
        ("sequence", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("gpu", LimitRecord * GPUS),
    ]


class SecondLimitsRecord(FirstLimitsRecord):
    """`struct psg_limits` up to what is uncounted, which the second files did not have."""

    _fields_ = [("fallback", TimetableRecord * GPUS)]


class ThirdLimitsRecord(SecondLimitsRecord):
    """`struct psg_limits` up to what was lost to others, which the third files did not have."""

    _fields_ = [("uncounted", ctypes.c_uint64 * GPUS)]


class FourthLimitsRecord(ThirdLimitsRecord):
    """`struct psg_limits` up to what is forgotten, which the fourth files did not have."""

    _fields_ = [("lost_ns", ctypes.c_int64 * GPUS)]


class LimitsRecord(FourthLimitsRecord):
    """`struct psg_limits`: the file that the agent writes."""

    _fields_ = [("forgotten_ns", ctypes.c_int64 * GPUS)]


class TotalRecord(ctypes.LittleEndianStructure):
    """`struct psg_total`."""

    _fields_ = [
        ("used", ctypes.c_uint64),
        ("launches", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
        ("wanted_ns", ctypes.c_uint64),
        ("debt_ns", ctypes.c_int64),
        ("until_ns", ctypes.c_uint64),
        ("overrun_ns", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("opens_ns", ctypes.c_uint64),
        ("context", ctypes.c_uint64),
        ("measured", ctypes.c_uint64),
        ("owed_ns", ctypes.c_uint64),
        ("endless_ns", ctypes.c_uint64),
        ("settled_ns", ctypes.c_int64),
        ("forgotten_ns", ctypes.c_int64),
        ("reserved", ctypes.c_uint64 * 1),
    ]


class BalanceRecord(ctypes.LittleEndianStructure):
    """`struct psg_balance`."""

    _fields_ = [("operations", ctypes.c_uint64), ("bytes", ctypes.c_uint64 * 2)]


class SlotRecord(ctypes.LittleEndianStructure):
    """`struct psg_slot`."""

    _fields_ = [
        ("pid", ctypes.c_uint32),
        ("uid", ctypes.c_uint32),
        ("start", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 6),
        ("gpu", BalanceRecord * GPUS),
    ]


class IntervalRecord(ctypes.LittleEndianStructure):
    """`struct psg_interval`."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("number", "from_ns", "to_ns", "busy_ns", "slot")]


class LogRecord(ctypes.LittleEndianStructure):
    """`struct psg_log`."""

    _fields_ = [
        ("begun", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 7),
        ("interval", IntervalRecord * INTERVALS),
    ]


class AccountHead(ctypes.LittleEndianStructure):
    """The part of `struct psg_account` before its slots."""

    _fields_ = [
        ("magic", ctypes.c_char * 8),
        ("version", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("slots", ctypes.c_uint32),
        ("high", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 5),
        ("gpu", TotalRecord * GPUS),
    ]


_INTERVAL = struct.Struct("<5Q")
LOGS_AT = ctypes.sizeof(AccountHead) + SLOTS * ctypes.sizeof(SlotRecord)
"""Where the logs of work begin in an account; the first files ended there."""
ACCOUNT_BYTES = LOGS_AT + GPUS * ctypes.sizeof(LogRecord)


@dataclass(frozen=True)
class Limit:
    """The limits of one GPU: memory in bytes (0: none), and how its time is shared."""

    uuid: str
    memory_bytes: int
    milli: int
    compute: Compute


@dataclass(frozen=True)
class Total:
    """What a container does with one GPU.

    `wanted_ns` is when it last launched, or waited to, or will probably want to again; `refused` are allocations;
    `endless_ns` is when the library last saw work that had been running for `ENDLESS_NS`. Up to `opens_ns` it pays debt
    by an unused part of its window, and `settled_ns` and `forgotten_ns` are what it has taken of the limits' sums.
    """

    used_bytes: int = 0
    launches: int = 0
    busy_ns: int = 0
    wanted_ns: int = 0
    debt_ns: int = 0
    refused: int = 0
    endless_ns: int = 0
    owed_ns: int = 0
    opens_ns: int = 0
    settled_ns: int = 0
    forgotten_ns: int = 0


class Interval(NamedTuple):
    """A time in which a process, named by its slot, had work on a GPU: `busy_ns` of it, with pauses of less than a ms.

    One that has a number already may have grown since.
    """

    number: int
    from_ns: int
    to_ns: int
    busy_ns: int
    slot: int


def fill(record: LimitRecord, limit: Limit) -> None:
    """Write limits into a record; its timetables stay."""
    record.uuid = limit.uuid.encode()[: UUID_BYTES - 1]
    record.memory_bytes, record.milli, record.compute = limit.memory_bytes, limit.milli, COMPUTE[limit.compute]


def limit_of(record: LimitRecord) -> Limit:
    """Return the limits of a record."""
    return Limit(record.uuid.decode(), record.memory_bytes, record.milli, _MODES[record.compute])


def lay(record: TimetableRecord, window: Window) -> None:
    """Write a timetable into a record."""
    for name, *_ in TimetableRecord._fields_:
        setattr(record, name, getattr(window, name))


def window_of(record: TimetableRecord) -> Window:
    """Return the timetable of a record."""
    return Window(record.from_ns, record.epoch_ns, record.period_ns, record.offset_ns, record.length_ns)


def total_of(record: TotalRecord) -> Total:
    """Return the totals of a record."""
    used = record.used & USED_MASK
    times = record.busy_ns, record.wanted_ns, record.debt_ns
    balance = record.owed_ns, record.opens_ns, record.settled_ns, record.forgotten_ns
    return Total(used, record.launches, *times, record.refused, record.endless_ns, *balance)


def intervals_of(log: bytes) -> list[Interval]:
    """Return the intervals of a log that are whole, of slots that there are; `log` is a `LogRecord`."""
    found = _INTERVAL.iter_unpack(log[LogRecord.interval.offset :])
    return [Interval(*each) for each in found if each[0] and 0 < each[-1] <= SLOTS]


def empty_account(count: int) -> bytes:
    """Return the content of a new account for so many GPUs."""
    head = AccountHead(magic=ACCOUNT_MAGIC, version=VERSION, count=count, slots=SLOTS)
    return bytes(head).ljust(ACCOUNT_BYTES, b"\0")
