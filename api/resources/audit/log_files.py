"""The files of the audit log: one a day of UTC, `YYYYMMDD.log`, to which lines are only ever added.

All here waits for the disk: call it in a thread.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from api.resources.audit import chain
from api.resources.audit.chain import GENESIS, Entry, Head, Verification
from common.errors import UnavailableError

_NAME = re.compile(r"(\d{8})\.log")
_TAIL = 1 << 22
"""So many bytes before the end hold more lines than are ever written at once."""


@dataclass(frozen=True)
class Day:
    """A file of the log."""

    day: str
    size: int


class LogFiles:
    """The log in a folder, sealed with a key."""

    def __init__(self, folder: Path, key: bytes) -> None:
        """Take note of folder and key."""
        self._folder = folder
        self._key = key

    def days(self) -> list[Day]:
        """Return the files, oldest first."""
        found = [(name[1], path) for path in self._folder.glob("*.log") if (name := _NAME.fullmatch(path.name))]
        return [Day(day, path.stat().st_size) for day, path in sorted(found)]

    def append(self, entries: Sequence[tuple[str, Entry]], at: datetime, expected: Head = GENESIS) -> Head:
        """Add entries by id to the file of a day, on disk when this returns; those that are there already are left out.

        A line that a crash has cut off is taken away first: its entry is among those that come again. The day goes on
        where the clock was put back. Where the files end before `expected`, what follows keeps the gap open.
        """
        with self._alone():
            days = self.days()
            day = max(f"{at:%Y%m%d}", days[-1].day if days else "")
            head, known = self._tail(days[-1].day) if days else (GENESIS, frozenset[str]())
            if head.seq < expected.seq or (head.seq == expected.seq and head.mac != expected.mac):
                head = expected
            lines = []
            for id_, entry in entries:
                if id_ not in known:
                    line, head = chain.seal(self._key, head, day, {"id": id_, **entry})
                    lines.append(line)
            if lines:
                self._add(self._path(day), b"".join(lines))
            return head

    def newest_first(self, before: int | None = None) -> Iterator[Entry]:
        """Yield the entries from the end, or from the one before a number; lines that nobody can read are left out."""
        for one in reversed(self.days()):
            for line in _backwards(self._path(one.day)):
                # what is not looked for is not checked, either: pages far back cost little more than the first
                if before is not None and chain.number_of(line) >= before:
                    continue
                if entry := chain.read(self._key, line):
                    yield entry

    def verify(self, heads: Mapping[str, Head]) -> Verification:
        """Return what is wrong with the whole log."""
        return chain.verify(self._key, ((one.day, _lines(self._path(one.day))) for one in self.days()), heads)

    def parts(self, day: str) -> Iterator[bytes]:
        """Yield the file of a day as it is."""
        with self._path(day).open("rb") as file:
            while part := file.read(1 << 16):
                yield part

    def extent(self, day: str) -> dict[str, Any] | None:
        """Return the first and last number of a day's lines and the last one's code; None where none can be read."""
        entries = [entry for line in _lines(self._path(day)) if (entry := chain.read(self._key, line.rstrip(b"\n")))]
        if not entries:
            return None
        return {"day": day, "first": entries[0]["seq"], "last": entries[-1]["seq"], "mac": entries[-1]["mac"]}

    def delete(self, day: str) -> None:
        """Delete the file of a day, if it is there."""
        with self._alone():
            self._path(day).unlink(missing_ok=True)
            self._sync_folder()

    def _path(self, day: str) -> Path:
        return self._folder / f"{day}.log"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others from writing: for a moment there may be two leaders."""
        try:
            with (self._folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise UnavailableError(
                f"the audit log cannot be written: {error.strerror}",
                where=str(self._folder),
                hint="see whether its disk is full, and whether the folder belongs to the API's user",
            ) from error

    def _tail(self, day: str) -> tuple[Head, frozenset[str]]:
        path = self._path(day)
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL, 0))
            tail = file.read()
            if tail and not tail.endswith(b"\n"):
                kept = tail.rfind(b"\n") + 1
                file.truncate(size - len(tail) + kept)
                tail = tail[:kept]
        entries = [entry for line in tail.splitlines() if (entry := chain.read(self._key, line))]
        ids = frozenset(str(entry["id"]) for entry in entries)
        return (Head(entries[-1]["seq"], entries[-1]["mac"]) if entries else self._before(day)), ids

    def _before(self, day: str) -> Head:
        """Return the last line that can be read before a day of which none can."""
        return next((Head(one["seq"], one["mac"]) for one in self.newest_first() if one["day"] < day), GENESIS)

    def _add(self, path: Path, lines: bytes) -> None:
        is_new = not path.exists()
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _backwards(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their ends, the last one first."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            end = len(content)
            while end > 0:
                start = content.rfind(b"\n", 0, end - 1) + 1
                yield content[start:end].rstrip(b"\n")
                end = start
