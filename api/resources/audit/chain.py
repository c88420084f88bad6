"""The chain of the audit log: each line carries its number, its day and a keyed code of itself and of the line before.

Pure. The code is HMAC-SHA-256 (RFC 2104) over the bytes of the line as they stand, without the code itself, so that one
changed byte shows, and, since the code of the line before is among them, a line that is missing or in another place.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Entry = dict[str, Any]

_NUMBER = re.compile(rb'\{"seq":(\d{1,18}),')
_SEALED = re.compile(rb'(\{"seq":.*),"mac":"([0-9a-f]{64})"\}', re.DOTALL)


class Head(NamedTuple):
    """A line of the log by its number and its code."""

    seq: int
    mac: str


GENESIS = Head(0, "0" * 64)
"""What the first line follows."""


@dataclass(frozen=True)
class Finding:
    """Something that is not as it was written: the file's day, the line in it (0: the file as a whole), and what."""

    day: str
    line: int
    what: str


def seal(key: bytes, head: Head, day: str, entry: Mapping[str, Any]) -> tuple[bytes, Head]:
    """Return the line of an entry that follows `head`, and itself as the new head."""
    whole = {"seq": head.seq + 1, "previous": head.mac, "day": day, **entry}
    body = json.dumps(whole, separators=(",", ":")).encode()[:-1]
    mac = _code(key, body)
    return body + b',"mac":"' + mac.encode() + b'"}\n', Head(head.seq + 1, mac)


def read(key: bytes, line: bytes) -> Entry | None:
    """Return the entry of a line without its end; None where it is not as it was written."""
    if not (found := _SEALED.fullmatch(line)) or not hmac.compare_digest(_code(key, found[1]), found[2].decode()):
        return None
    entry: Entry = json.loads(line)
    return entry


def number_of(line: bytes) -> int:
    """Return the number that a line says it has; 0 where it says none. Nothing is checked."""
    found = _NUMBER.match(line)
    return int(found[1]) if found else 0


def _code(key: bytes, body: bytes) -> str:
    return hmac.new(key, body, hashlib.sha256).hexdigest()


@dataclass
class _Gap:
    """Numbers that no line has, from `first` to `last`, and the code that the line after them follows."""

    day: str
    line: int
    first: int
    last: int
    previous: str
    unread: int


@dataclass
class Verification:
    """What a whole log comes to: how many of its lines are as they were written, the last one, and what is wrong.

    `deleted` are the files that an administrator has deleted, as the log says; each is sealed in it by its numbers.
    """

    lines: int = 0
    head: Head = GENESIS
    findings: list[Finding] = field(default_factory=list)
    deleted: list[Entry] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def verify(key: bytes, files: Iterable[tuple[str, Iterable[bytes]]], heads: Mapping[str, Head]) -> Verification:
    """Return what is wrong with the files of a log, given by day in their order with their lines and the lines' ends.

    `heads` are lines that others have seen, by who: each must be in the log, or in a file that was deleted.
    """
    return _Verifier(key, heads).run(files)


class _Verifier:
    def __init__(self, key: bytes, heads: Mapping[str, Head]) -> None:
        self._key = key
        self._heads = heads
        self._wanted = {head.seq for head in heads.values()}
        self._seen: dict[int, str] = {}
        self._gaps: list[_Gap] = []
        self._unread: list[Finding] = []
        self._done = Verification()

    def run(self, files: Iterable[tuple[str, Iterable[bytes]]]) -> Verification:
        for day, lines in files:
            for number, line in enumerate(lines, 1):
                self._take(day, number, line)
        self._done.findings += self._unread
        self._judge_gaps()
        self._done.findings += self._of_heads()
        self._done.findings.sort(key=lambda found: (found.day, found.line))
        return self._done

    def _take(self, day: str, number: int, line: bytes) -> None:
        whole = line.endswith(b"\n")
        entry = read(self._key, line[:-1] if whole else line)
        if entry is None:
            what = "this line is not as it was written" if whole else "this line is cut off"
            self._unread.append(Finding(day, number, what))
            return
        if not whole:
            self._find(day, number, "this line has no end")
        if entry["day"] != day:
            self._find(day, number, f"this line is of {entry['day']}")
        self._done.lines += 1
        self._place(day, number, entry)
        if "deleted" in entry:
            self._done.deleted.append(entry["deleted"])

    def _place(self, day: str, number: int, entry: Entry) -> None:
        seq, head = int(entry["seq"]), self._done.head
        if seq <= head.seq:
            late = next((gap for gap in self._gaps if gap.first <= seq <= gap.last), None)
            self._find(day, number, f"line {seq} of the log stands {'too late' if late else 'here again'}")
            if late:
                self._fill(late, seq)
            return
        unread = len(self._unread)
        self._done.findings += self._unread
        self._unread = []
        if seq > head.seq + 1:
            self._gaps.append(_Gap(day, number, head.seq + 1, seq - 1, entry["previous"], unread))
        elif unread or entry["previous"] != head.mac:
            self._find(day, number, "what stands before this line was never there" if unread else "not what it follows")
        self._done.head = Head(seq, entry["mac"])
        if seq in self._wanted:
            self._seen[seq] = entry["mac"]

    def _fill(self, gap: _Gap, seq: int) -> None:
        self._gaps.remove(gap)
        parts = [(gap.first, seq - 1), (seq + 1, gap.last)]
        self._gaps += [
            _Gap(gap.day, gap.line, first, last, gap.previous, gap.unread) for first, last in parts if first <= last
        ]

    def _judge_gaps(self) -> None:
        for gap in self._gaps:
            lost = gap.last - gap.first + 1 - gap.unread
            if lost > 0 and not self._was_deleted(gap):
                which = f"line {gap.first}" if gap.first == gap.last else f"lines {gap.first} to {gap.last}"
                of_these = f"{lost} of the " if gap.unread else ""
                self._find(gap.day, gap.line, f"{of_these}{which} of the log before this one are missing")

    def _was_deleted(self, gap: _Gap) -> bool:
        """Return whether files that were deleted fill a gap without a rest, the last with the code that follows."""
        due = gap.first
        for one in sorted(self._done.deleted, key=lambda one: int(one["first"])):
            if one["first"] == due:
                due = one["last"] + 1
                if due == gap.last + 1:
                    return bool(one["mac"] == gap.previous)
        return False

    def _of_heads(self) -> Iterator[Finding]:
        gone = [(one["first"], one["last"]) for one in self._done.deleted]
        for who, head in sorted(self._heads.items()):
            if head.seq > self._done.head.seq:
                yield Finding("", 0, f"the log ends with line {self._done.head.seq}, and {who} has seen {head.seq}")
            elif head.seq and self._seen.get(head.seq, head.mac) != head.mac:
                yield Finding("", 0, f"line {head.seq} is another one than {who} has seen")
            elif head.seq and head.seq not in self._seen and not any(a <= head.seq <= b for a, b in gone):
                yield Finding("", 0, f"line {head.seq}, which {who} has seen, is not in the log")

    def _find(self, day: str, line: int, what: str) -> None:
        self._done.findings.append(Finding(day, line, what))
