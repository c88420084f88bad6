"""Lines of the audit log that a syslog server has not got, with what is wrong between them. Pure.

What is not as it was written goes to the server as it stands, marked, and all behind it follows: who changes a line
stops no later one, and leaves nothing out unseen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from api.resources.audit.chain import Entry
from api.resources.audit.log_files import Line

ACTION = "audit_unreadable"
MAX_TEXT = 8192
"""Characters of a line that is not as it was written that are sent."""
AT_ONCE = 100
"""So many of these are sent between two lines; the others are counted."""


@dataclass(frozen=True)
class Unsent:
    """A message for the server, and up to which number it has the log with it; `fault` is what is wrong before it."""

    text: bytes
    entry: Entry
    seq: int
    fault: str = ""


def unsent(following: Iterable[Line], sent: int, end: int, time: str) -> Iterator[Unsent]:
    """Yield what the server gets behind the number that was `sent`, up to the one of which the database knows.

    One that has got nothing yet lacks no file that was deleted before.
    """
    seq, odd, odds = sent, list[Line](), 0
    for line in following:
        number = int(line.entry["seq"]) if line.entry else 0
        if number > end:
            break
        if line.entry is None or number <= seq:
            odds += 1
            odd += [line][: AT_ONCE - len(odd)]
            continue
        if odds or (number > seq + 1 and seq):
            yield from _wrong(odd, odds, seq, number - 1, time)
        seq, odd, odds = number, [], 0
        yield Unsent(line.text, line.entry, seq)
    # what stands behind the last one that the database knows may just be written
    if seq < end:
        yield from _wrong(odd, odds, seq, end, time)


def _wrong(odd: list[Line], odds: int, before: int, last: int, time: str) -> Iterator[Unsent]:
    """Yield what stands behind a line instead of those up to another one, and in the end what that comes to."""
    for line in odd:
        text = line.text.decode(errors="backslashreplace")[:MAX_TEXT]
        said = {"file": f"{line.day}.log", "behind": before, "what": "not as it was written", "line": text}
        yield _message(said, before, time)
    found = [f"{odds} not as written stand there"] if odds else []
    found += [f"lines {before + 1} to {last} are missing"] if last > before else []
    fault = f"when the log was sent, behind line {before}: {', '.join(found)}"
    yield _message({"behind": before, "what": fault}, last, time, fault)


def _message(said: dict[str, object], seq: int, time: str, fault: str = "") -> Unsent:
    entry = {"seq": max(seq, 1), "time": time, "action": ACTION, "result": "unreadable"}
    return Unsent(json.dumps(said).encode(), entry, seq, fault)
