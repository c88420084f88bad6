"""Tables and JSON on standard output."""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from appliance.client.views import Revoked

T = TypeVar("T")

GAP = "  "
NARROWEST = 8
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories of what a terminal obeys in place of showing it, of what turns words around, and of what nobody sees."""
_JOINS = "\u200c\u200d"
"""Between letters of Persian and Hindi, and in emoji, these are part of the word."""
_STEPS = ((86400, "d"), (3600, "h"), (60, "m"))


class Format(StrEnum):
    """How to print what was asked for."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("-o", "--output", help="table, or json for programs.")]


def show(value: T, form: Format, as_text: Callable[[T], None]) -> None:
    """Print a value as JSON, or as the text that `as_text` prints."""
    if form is Format.JSON:
        print_json(value)
    else:
        as_text(value)


def with_it(revoked: Revoked) -> str:
    """Return how many keys went with one, as the end of a sentence."""
    return f", and with it keys that it had made: {revoked['with_it']}" if revoked["with_it"] else ""


def plain(text: str, kept: str = "") -> str:
    """Return what others have written as a terminal can only show it, with the signs that are `kept`."""
    if text.isascii() and text.isprintable():
        return text
    before = ["", *text]
    return "".join(
        char if char in kept or _seen(char, last) else char.encode("unicode_escape").decode()
        for last, char in zip(before, text, strict=False)
    )


def _seen(char: str, last: str) -> bool:
    return unicodedata.category(char) not in _HIDDEN or (char in _JOINS and not last.isascii())


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[str] = ()) -> None:
    """Print rows under a head.

    On a terminal that is too narrow, the columns `below` go to a second line of each row, and the widest cells are cut.
    """
    rows = [[plain(cell) for cell in row] for row in rows]
    for line in table(head, rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None, below):
        print(line)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, below: Sequence[str] = ()
) -> list[str]:
    """Return the lines of a table no wider than `width` characters, as far as readable; None means no limit."""
    every = [head, *rows]
    if not below or not width or _total(_widths(every)) <= width:
        return _lines(every, width)
    under = [head.index(name) for name in below]
    first = [[cell for index, cell in enumerate(row) if index not in under] for row in every]
    second = [["", *(row[index] for index in under)] for row in every]
    # what is below is not cut: a half address is of no use
    pairs = zip(_lines(first, width), _lines(second, None), strict=True)
    return [line for pair in pairs for line in pair if line]


def print_fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names with their values, one a line; those without a value are left out."""
    shown = [(f"{name}:", plain(value)) for name, value in pairs if value]
    size = max(len(name) for name, _ in shown)
    for name, value in shown:
        print(f"{name:{size}} {value}")


def age(since: str, now: datetime | None = None) -> str:
    """Return how long ago an ISO 8601 time was, as one number with a unit: `12s`, `5m`, `3h`, `2d`."""
    seconds = max(0, int(((now or datetime.now(UTC)) - datetime.fromisoformat(since)).total_seconds()))
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def duration(seconds: int) -> str:
    """Return a number of seconds in the largest units that hold it whole: `90s`, `2h`, `1d 12h`."""
    parts = []
    for size, unit in (*_STEPS, (1, "s")):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def moment(time: str | None) -> str:
    """Return an ISO 8601 time in the user's zone, to the second; empty for None."""
    return datetime.fromisoformat(time).astimezone().isoformat(" ", "seconds") if time else ""


def gib(mib: int) -> str:
    """Return MiB as GiB with one decimal place: `23.5G`."""
    return f"{mib / 1024:.1f}G"


def listed(names: Sequence[str]) -> str:
    """Return names with commas between them, a hyphen for none."""
    return ", ".join(names) or "-"


def _lines(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    widths = _widths(rows)
    while width and _total(widths) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return [GAP.join(_padded(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_cells, column)) for column in zip(*rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _padded(text: str, size: int) -> str:
    if _cells(text) > size:
        while _cells(text) > size - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (size - _cells(text))


def _cells(text: str) -> int:
    """Return how many columns of a terminal a text takes; those of East Asia take two a letter."""
    return len(text) if text.isascii() else sum(_letter(char) for char in text)


def _letter(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
