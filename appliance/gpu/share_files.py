"""The limits of a container, written in place while it reads them, and its account, which it writes and we read."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from appliance.gpu import layout
from appliance.gpu.layout import (
    FirstLimitsRecord,
    FourthLimitsRecord,
    Limit,
    LimitsRecord,
    SecondLimitsRecord,
    ThirdLimitsRecord,
    Total,
)
from appliance.gpu.timetable import Window, current
from common.errors import UnavailableError

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LimitsFile:
    """A limits file, mapped. Whoever reads it sees each change whole or not at all: a sequence is odd meanwhile."""

    def __init__(self, path: Path) -> None:
        """Map an existing file; raises UnavailableError where it cannot be read, or is of another version."""
        try:
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
            kinds = (LimitsRecord, FourthLimitsRecord, ThirdLimitsRecord, SecondLimitsRecord)
            kind = next((kind for kind in kinds if ctypes.sizeof(kind) <= len(self._map)), FirstLimitsRecord)
            self._record: FirstLimitsRecord = kind.from_buffer(self._map)
        except (OSError, ValueError) as error:
            raise _unusable(path, str(error)) from error
        self._lock, self._fence = threading.Lock(), threading.Lock()
        if (self._record.magic, self._record.version) != (layout.LIMITS_MAGIC, layout.VERSION):
            raise _unusable(path, f"it is of version {self._record.version}")

    @classmethod
    def create(cls, path: Path, limits: Sequence[Limit]) -> LimitsFile:
        """Write a new file that is complete as soon as it is there, and map it; raises UnavailableError."""
        record = LimitsRecord(magic=layout.LIMITS_MAGIC, version=layout.VERSION, count=len(limits))
        for place, limit in zip(record.gpu, limits, strict=False):
            layout.fill(place, limit)
        write(path, bytes(record), 0o644)
        return cls(path)

    def limits(self) -> list[Limit]:
        """Return the limits of each GPU, in the order of the file."""
        return [layout.limit_of(record) for record in self._record.gpu[: self._record.count]]

    def windows(self, uuid: str) -> tuple[Window, Window]:
        """Return both timetables of a GPU."""
        first, second = (layout.window_of(record) for record in self._limit(uuid).timetable)
        return first, second

    def change(self, limits: Sequence[Limit]) -> None:
        """Change the limits of GPUs that the file has."""
        with self._writing():
            for limit in limits:
                layout.fill(self._limit(limit.uuid), limit)

    def schedule(self, windows: Mapping[str, Window], now_ns: int) -> None:
        """Write the next timetable of GPUs, by their ids, over the one that is not valid now."""
        with self._writing():
            for uuid, window in windows.items():
                first, second = self.windows(uuid)
                valid = current([first, second, self.fallback(uuid)], now_ns)
                # of two alike the first counts as valid; where neither is, one may be known for the next and goes
                over = 1 if valid == first or (valid != second and second.from_ns > first.from_ns) else 0
                layout.lay(self._limit(uuid).timetable[over], window)

    def fallback(self, uuid: str) -> Window:
        """Return what becomes valid for a GPU where nobody puts it off; an empty one where there is none."""
        if not isinstance(self._record, SecondLimitsRecord):
            return Window()
        return layout.window_of(self._record.fallback[self.number(uuid)])

    def put_off(self, windows: Mapping[str, Window], now_ns: int) -> bool:
        """Write fallbacks of GPUs, by their ids; where one is valid now, nothing is written before another plan is.

        Returns whether they stand there; a file of the first kind has no place for them, and that is no trouble.
        """
        if not isinstance(self._record, SecondLimitsRecord):
            return True
        if any(self._is_fallen(uuid, now_ns) for uuid in windows):
            return False
        with self._writing():
            for uuid, window in windows.items():
                layout.lay(self._record.fallback[self.number(uuid)], window)
        return True

    def charge(self, uncounted: Mapping[str, int]) -> None:
        """Write what processes hold beyond the account, in bytes by GPU; an earlier file has no place for it."""
        if isinstance(self._record, ThirdLimitsRecord):
            for uuid, size in uncounted.items():
                self._record.uncounted[self.number(uuid)] = size

    def uncounted(self, uuid: str) -> int:
        """Return the bytes of a GPU that processes hold beyond the account."""
        return self._record.uncounted[self.number(uuid)] if isinstance(self._record, ThirdLimitsRecord) else 0

    def settle(self, uuid: str, lost_ns: int) -> None:
        """Give back ns of a GPU that processes counted as theirs and lost; an earlier file has no place for it."""
        if isinstance(self._record, FourthLimitsRecord):
            self._record.lost_ns[self.number(uuid)] += lost_ns

    def lost(self, uuid: str) -> int:
        """Return the ns of a GPU that were given back so, in all."""
        return self._record.lost_ns[self.number(uuid)] if isinstance(self._record, FourthLimitsRecord) else 0

    def forget(self, uuid: str, forgotten_ns: int) -> None:
        """Let ns of a GPU that are owed to the container be forgotten, or below zero of its debt; later files only."""
        if isinstance(self._record, LimitsRecord):
            self._record.forgotten_ns[self.number(uuid)] += forgotten_ns

    def forgotten(self, uuid: str) -> int:
        """Return the ns of a GPU that were forgotten so, in all."""
        return self._record.forgotten_ns[self.number(uuid)] if isinstance(self._record, LimitsRecord) else 0

    def _is_fallen(self, uuid: str, now_ns: int) -> bool:
        fallback = self.fallback(uuid)
        return bool(fallback.period_ns) and current([*self.windows(uuid), fallback], now_ns) == fallback

    def number(self, uuid: str) -> int:
        """Return the place of a GPU, which is that in the account, too."""
        return [record.uuid.decode() for record in self._record.gpu[: self._record.count]].index(uuid)

    def _limit(self, uuid: str) -> layout.LimitRecord:
        record: layout.LimitRecord = self._record.gpu[self.number(uuid)]
        return record

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            # odd already where an agent was killed in the middle of a change
            self._record.sequence |= 1
            self._order()
            try:
                yield
            finally:
                self._order()
                self._record.sequence += 1

    def _order(self) -> None:
        """Keep what was written before ahead of what is written after; locks do that on every processor."""
        with self._fence:
            pass


def create_account(path: Path, count: int) -> None:
    """Write a new account for so many GPUs, which every process of the container may write; raises UnavailableError."""
    write(path, layout.empty_account(count), 0o666)


def read_account(path: Path) -> list[Total]:
    """Return the totals of each GPU; none where the container has spoilt the file or there is none."""
    data = _read(path, 0, ctypes.sizeof(layout.AccountHead))
    if data is None:
        return []
    head = layout.AccountHead.from_buffer_copy(data)
    if (head.magic, head.version) != (layout.ACCOUNT_MAGIC, layout.VERSION) or head.count > layout.GPUS:
        return []
    return [layout.total_of(record) for record in head.gpu[: head.count]]


def read_log(path: Path, number: int) -> bytes:
    """Return the log of work on a GPU, a `LogRecord`; nothing where an account has no place for it or is spoilt."""
    size = ctypes.sizeof(layout.LogRecord)
    return _read(path, layout.LOGS_AT + number * size, size) or b""


def _read(path: Path, at: int, size: int) -> bytes | None:
    """Return a part of an account, or None where it is not there.

    It is read and not mapped, for a container could cut it short and a mapping would end this process.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return None
    try:
        data = os.pread(descriptor, size, at)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) == size else None


def write(path: Path, data: bytes, mode: int) -> None:
    """Write a file that is complete as soon as it is there; raises UnavailableError."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        # whatever the mask of the process takes away
        path.parent.chmod(0o755)
        partial.chmod(mode)
        partial.replace(path)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error


def _unusable(path: Path, reason: str) -> UnavailableError:
    return UnavailableError(
        f"the file cannot be used: {reason}", where=str(path), hint="check the tmpfs /run of the node"
    )
