"""The files of the audit log: one a day of UTC, `YYYYMMDD.log`, to which lines are only ever added.

Their names sort as their lines do. Where the clock was put back behind the last file, later ones are named
for that one's day and their own, `YYYYMMDD-YYYYMMDD.log`, until the clock has come to it.

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
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from api.resources.audit import chain
from api.resources.audit.chain import GENESIS, Entry, Head, Verification
from common.errors import UnavailableError

_NAME = re.compile(r"(\d{8}(?:-\d{8})*)\.log")
LONGEST_NAME = 20
"""Days in the name of a file at most: a clock that is put to and fro makes no name that a file cannot have."""


@dataclass(frozen=True)
class Day:
    """A file of the log."""

    day: str
    size: int


class Line(NamedTuple):
    """A line of a file, without its end; `entry` is None where it is not as it was written."""

    day: str
    text: bytes
    entry: Entry | None


def file_of(at: datetime, last: str) -> str:
    """Return the file that a line goes into, by the one that has the last lines; a clock may be put back for a day."""
    today, days = f"{at:%Y%m%d}", last.split("-")
    if not last or today > days[0]:
        return today
    if f"{at + timedelta(days=1):%Y%m%d}" >= days[-1] >= today:
        return last
    passed = [day for day in days if day >= today]
    return "-".join([*passed, today]) if len(passed) < LONGEST_NAME else last


class LogFiles:
    """The log in a folder, sealed with a key."""

    def __init__(self, folder: Path, key: bytes) -> None:
        """Take note of folder and key."""
        self._folder = folder
        self._key = key

    def days(self) -> list[Day]:
        """Return the files, oldest first."""
        with _can("read", self._folder):
            found = [(name[1], path) for path in self._folder.iterdir() if (name := _NAME.fullmatch(path.name))]
            return [Day(day, path.stat().st_size) for day, path in sorted(found)]

    def append(self, entries: Sequence[tuple[str, Entry]], at: datetime, expected: Head = GENESIS) -> Head:
        """Add entries by id to the file of a day, on disk when this returns; those that are there already are left out.

        A line that a crash has cut off is taken away first: its entry is among those that come again, as are those
        that stand after `expected`, the last line that the database knows. Where the files end before `expected`,
        what follows keeps the gap open.
        """
        with self._alone():
            days = self.days()
            day = file_of(at, days[-1].day if days else "")
            if days:
                _drop_cut_line(self._path(days[-1].day))
            head, known = self._after(expected)
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

    def after(self, seq: int) -> Iterator[Line]:
        """Yield the lines behind a number, oldest first, also those that are not as they were written."""
        later = takewhile(lambda one: not 0 < self.last_of(one.day) <= seq, reversed(self.days()))
        for one in reversed(list(later)):
            for line in self._behind(self._path(one.day), seq):
                text = line.rstrip(b"\n")
                yield Line(one.day, text, chain.read(self._key, text))

    def _behind(self, path: Path, seq: int) -> Iterator[bytes]:
        """Yield the lines of a file with their ends that stand behind a number."""
        ends = (end for end, line in _ends(path) if 0 < chain.number_of(line) <= seq and chain.read(self._key, line))
        return _lines(path, next(ends, 0))

    def last_of(self, day: str) -> int:
        """Return the number of the last line of a day that is as it was written; 0 where none is."""
        return next((entry["seq"] for line in _backwards(self._path(day)) if (entry := chain.read(self._key, line))), 0)

    def verify(self, heads: Mapping[str, Sequence[Head]]) -> Verification:
        """Return what is wrong with the whole log."""
        return chain.verify(self._key, ((one.day, _lines_if_there(self._path(one.day))) for one in self.days()), heads)

    def parts(self, day: str) -> Iterator[bytes]:
        """Yield the file of a day as it is."""
        with self._path(day).open("rb") as file:
            while part := file.read(1 << 16):
                yield part

    def extent(self, day: str) -> Entry:
        """Return what the log says of a day's file that is deleted."""
        # a day may be larger than memory
        return chain.extent(self._key, day, _lines(self._path(day)))

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
        with _can("written", self._folder), (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _after(self, expected: Head) -> tuple[Head, set[str]]:
        """Return the last line that can be read, and the ids of all that stand after `expected`."""
        head, ids = GENESIS, set[str]()
        for entry in self.newest_first():
            if head == GENESIS:
                head = Head(entry["seq"], entry["mac"])
            if entry["seq"] <= expected.seq:
                break
            ids.add(str(entry["id"]))
        return head, ids

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


@contextmanager
def _can(done: str, path: Path) -> Iterator[None]:
    """Raise UnavailableError for what the system refuses."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"the audit log cannot be {done}: {error.strerror}",
            where=str(path),
            hint="see whether its disk is full, and whether the folder belongs to the API's user",
        ) from error


def _drop_cut_line(path: Path) -> None:
    """Take away the end of a file that is no whole line."""
    with path.open("r+b") as file:
        if not (size := file.seek(0, os.SEEK_END)):
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            kept = content.rfind(b"\n") + 1
        if kept < size:
            file.truncate(kept)


def _lines(path: Path, begin: int = 0) -> Iterator[bytes]:
    """Yield the lines of a file with their ends, from where one begins."""
    with _can("read", path), path.open("rb") as file:
        file.seek(begin)
        yield from file


def _lines_if_there(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; none of one that was deleted meanwhile, which a later file tells."""
    try:
        yield from _lines(path)
    except UnavailableError:
        if path.exists():
            raise


def _backwards(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their ends, the last one first."""
    return (line for _, line in _ends(path))


def _ends(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield where each line of a file ends, and the line without its end, the last one first."""
    with _can("read", path), path.open("rb") as file:
        if not path.stat().st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            end = len(content)
            while end > 0:
                start = content.rfind(b"\n", 0, end - 1) + 1
                yield end, content[start:end].rstrip(b"\n")
                end = start
