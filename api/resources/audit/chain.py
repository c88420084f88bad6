"""The chain of the audit log: each line carries its number, its day and a keyed code of itself and of the line before.

Pure. The code is HMAC-SHA-256 (RFC 2104) over the bytes of the line as they stand, without the code itself, so that one
changed byte shows, and, since the code of the line before is among them, a line that is missing or in another place.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Entry = dict[str, Any]

_NUMBER = re.compile(rb'\{"seq":(\d{1,18}),')
_SEALED = re.compile(rb'(\{"seq":.*),"mac":"([0-9a-f]{64})"\}', re.DOTALL)


class Head(NamedTuple):
    """A line of the log by its number and its code."""

    seq: int
    mac: str

    def __str__(self) -> str:
        """Return it as agents are told."""
        return f"{self.seq}:{self.mac}"


GENESIS = Head(0, "0" * 64)
"""What the first line follows."""


@dataclass(frozen=True)
class Discrepancy:
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


def deletions(entry: Entry) -> list[Entry]:
    """Return the files whose deletion a line records: those whose own record went with this one, and this one."""
    if not (sealed := dict(entry.get("deleted") or {})):
        return []
    return [*sealed.pop("earlier", []), {**sealed, "user": entry.get("user", ""), "time": entry.get("time", "")}]


def together(deleted: Iterable[Entry]) -> list[Entry]:
    """Return deletions with those as one that follow each other and are the clock's, which deletes a file every day.

    What nobody (`user` is empty) has deleted, the clock has; `day` is the first of its days then, `through` the last.
    """
    told: list[Entry] = []
    for one in sorted(deleted, key=lambda one: (one["first"], one["last"])):
        before = told[-1] if told else None
        if before and not before["user"] and not one["user"] and one["first"] == before["last"] + 1:
            told[-1] = {**one, **_altered([before, one]), "day": before["day"], "first": before["first"]}
            told[-1]["through"] = one.get("through", one["day"])
        elif one not in told:
            told.append(one)
    return told


def _altered(deleted: Sequence[Entry]) -> Entry:
    """Return how many findings files had that were deleted, and the first of these; nothing where they had none."""
    told = [one for one in deleted if one.get("findings")]
    return {"findings": sum(one["findings"] for one in told), "finding": told[0]["finding"]} if told else {}


def said_of(deleted: Entry) -> str:
    """Return what is wrong with a file that was deleted, as its deletion says; empty where nothing was."""
    if not deleted.get("findings"):
        return ""
    return f"it did not verify when it was deleted: {deleted['findings']} found, first {deleted['finding']}"


def number_of(line: bytes) -> int:
    """Return the number that a line says it has; 0 where it says none. Nothing is checked."""
    found = _NUMBER.match(line)
    return int(found[1]) if found else 0


def _code(key: bytes, body: bytes) -> str:
    return hmac.new(key, body, hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class _Gap:
    """Numbers that no line has in its place, from `first` to `last`, and the code that the line after them follows."""

    day: str
    line: int
    first: int
    last: int
    previous: str
    unread: int


@dataclass
class Verification:
    """What a log comes to: how many of its lines are as they were written, the first and the last, and what is wrong.

    `deleted` are the files that administrators have deleted, as the log says: each sealed in it by its numbers, with
    who did so and when.
    """

    lines: int = 0
    first: int = 0
    head: Head = GENESIS
    findings: list[Discrepancy] = field(default_factory=list)
    deleted: list[Entry] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def verify(
    key: bytes, files: Iterable[tuple[str, Iterable[bytes]]], heads: Mapping[str, Sequence[Head]]
) -> Verification:
    """Return what is wrong with the files of a log, given by day in their order with their lines and the lines' ends.

    `heads` are lines that others have seen, by who: each must be in the log, or in a file that was deleted.
    """
    done = _Verifier(key, heads).run(files)
    done.findings += [Discrepancy(one["day"], 0, said) for one in done.deleted if (said := said_of(one))]
    done.findings.sort(key=lambda found: (found.day, found.line))
    return done


def extent(key: bytes, day: str, lines: Iterable[bytes]) -> Entry:
    """Return what the log says of a file that is deleted: the first and last number of its lines, the last one's code.

    `earlier` are the deletions that these lines record: who deletes them takes that along. Of a file that is not as it
    was written `findings` says how much is wrong, and `finding` what first: nobody can see it afterwards.
    """
    done = _Verifier(key, {}, begins_anywhere=True).run([(day, lines)])
    told: Entry = {"day": day, "first": 0, "last": -1, "mac": ""}
    if done.lines:
        told |= {"first": done.first, "last": done.head.seq, "mac": done.head.mac}
    if earlier := together(done.deleted):
        told["earlier"] = earlier
    if done.findings:
        first = done.findings[0]
        told |= {"findings": len(done.findings), "finding": f"{day}.log:{first.line}: {first.what}"}
    return told


class _Verifier:
    def __init__(self, key: bytes, heads: Mapping[str, Sequence[Head]], *, begins_anywhere: bool = False) -> None:
        self._key = key
        self._begins_anywhere = begins_anywhere
        self._heads = heads
        self._wanted = {head.seq for seen in heads.values() for head in seen}
        self._seen: dict[int, str] = {}
        # by their numbers, for each begins behind the one before
        self._gaps: list[_Gap] = []
        self._late: set[int] = set()
        self._unread: list[Discrepancy] = []
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
            self._unread.append(Discrepancy(day, number, what))
            return
        if not whole:
            self._find(day, number, "this line has no end")
        if entry["day"] != day:
            self._find(day, number, f"this line is of {entry['day']}")
        self._done.lines += 1
        self._place(day, number, entry)
        self._done.deleted += [one for one in deletions(entry) if one not in self._done.deleted]

    def _place(self, day: str, number: int, entry: Entry) -> None:
        seq = int(entry["seq"])
        if not self._done.first:
            self._done.first = seq
            if self._begins_anywhere:
                self._done.head = Head(seq - 1, entry["previous"])
        head = self._done.head
        if seq <= head.seq:
            is_late = seq not in self._late and self._is_in_gap(seq)
            self._find(day, number, f"line {seq} of the log stands {'too late' if is_late else 'here again'}")
            if is_late:
                self._late.add(seq)
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

    def _is_in_gap(self, seq: int) -> bool:
        place = bisect_right(self._gaps, seq, key=lambda gap: gap.first) - 1
        return place >= 0 and seq <= self._gaps[place].last

    def _missing(self) -> Iterator[_Gap]:
        """Yield what no line has, neither in its place nor too late."""
        late, place = sorted(self._late), 0
        for gap in self._gaps:
            first = gap.first
            while place < len(late) and late[place] <= gap.last:
                if first < late[place]:
                    yield replace(gap, first=first, last=late[place] - 1)
                first = late[place] + 1
                place += 1
            if first <= gap.last:
                yield replace(gap, first=first)

    def _judge_gaps(self) -> None:
        deleted: dict[int, list[Entry]] = {}
        for one in self._done.deleted:
            deleted.setdefault(int(one["first"]), []).append(one)
        for gap in self._missing():
            lost = gap.last - gap.first + 1 - gap.unread
            if lost > 0 and not _was_deleted(gap, deleted):
                which = f"line {gap.first}" if gap.first == gap.last else f"lines {gap.first} to {gap.last}"
                of_these = f"{lost} of the " if gap.unread else ""
                self._find(gap.day, gap.line, f"{of_these}{which} of the log before this one are missing")

    def _of_heads(self) -> Iterator[Discrepancy]:
        end = self._done.head.seq
        for who, seen in sorted(self._heads.items()):
            if (furthest := max((head.seq for head in seen), default=0)) > end:
                yield Discrepancy("", 0, f"the log ends with line {end}, and {who} has seen {furthest}")
            if wrong := next(filter(None, (self._of_head(who, head) for head in seen if 0 < head.seq <= end)), ""):
                yield Discrepancy("", 0, wrong)

    def _of_head(self, who: str, head: Head) -> str:
        """Return what is wrong with a line that somebody has seen; nothing where it is in the log, or was deleted."""
        if head.seq in self._seen:
            return f"line {head.seq} is another one than {who} has seen" if self._seen[head.seq] != head.mac else ""
        if any(one["first"] <= head.seq <= one["last"] for one in self._done.deleted):
            return ""
        return f"line {head.seq}, which {who} has seen, is not in the log"

    def _find(self, day: str, line: int, what: str) -> None:
        self._done.findings.append(Discrepancy(day, line, what))


def _was_deleted(gap: _Gap, deleted: Mapping[int, Sequence[Entry]]) -> bool:
    """Return whether files that were deleted fill a gap without a rest, the last with the code that follows."""
    due = gap.first
    while fitting := [one for one in deleted.get(due, ()) if due <= one["last"] <= gap.last]:
        furthest = max(fitting, key=lambda one: int(one["last"]))
        due = int(furthest["last"]) + 1
        if due > gap.last:
            return bool(furthest["mac"] == gap.previous)
    return False
