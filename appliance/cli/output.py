"""Tables and JSON on standard output."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

GAP = "  "
NARROWEST = 8
_STEPS = ((86400, "d"), (3600, "h"), (60, "m"))


class Format(StrEnum):
    """How to print what was asked for."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("-o", "--output", help="table, or json for programs.")]
ProjectOption = Annotated[str | None, typer.Option("-p", "--project", help="Project, instead of the current one.")]


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a head; on a terminal, the widest cells are cut so that a row stays on one line."""
    for line in table(head, rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
        print(line)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return the lines of a table no wider than `width` characters, as far as readable; None means no limit."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    while width and sum(widths) + len(GAP) * (len(widths) - 1) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return [
        GAP.join(_cut(cell, size).ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]


def print_fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names with their values, one a line; those without a value are left out."""
    shown = [(f"{name}:", value) for name, value in pairs if value]
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


def moment(time: str | None) -> str:
    """Return an ISO 8601 time in the user's zone, to the second; empty for None."""
    return datetime.fromisoformat(time).astimezone().isoformat(" ", "seconds") if time else ""


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"
