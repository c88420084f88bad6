"""Search of the site's journal by the indexes of its fields: words of journalctl, and what it answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from api.resources.logs import senders
from api.resources.logs.schemas import LogEntryView
from common.logs import NODE, REQUEST, SESSION, USER

LEVELS = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")
"""By their numbers in the journal."""
_LEVELS = {str(number): level for number, level in enumerate(LEVELS)}
PATIENCE_S = 20
_HOST, _UNIT, _IDENTIFIER = "_HOSTNAME", "_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER"
_FIELDS = ("MESSAGE", "PRIORITY", _HOST, _UNIT, _IDENTIFIER, REQUEST, SESSION, NODE, USER)

_UNREADABLE = LogEntryView(
    time="", node="", host="", unit="", level="info", message="(cannot be read)", request="", session="", user=""
)


@dataclass(frozen=True)
class Search:
    """What is looked for: all that is named, `level` and worse. A node is whence a line comes, or what it is about."""

    request: str | None = None
    session: str | None = None
    user: str | None = None
    unit: str | None = None
    node: str | None = None
    level: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def command(files: Iterable[Path], wanted: Search, limit: int, after: str | None) -> list[str]:
    """Return the call that prints `limit` entries at most, newest first; those after a cursor, where one is given.

    `files` are patterns of their names.
    """
    words = ["timeout", str(PATIENCE_S), "journalctl", *(f"--file={each}" for each in files)]
    words += ["--quiet", "--no-pager", "--reverse"]
    words += ["--output=json", f"--output-fields={','.join(_FIELDS)}", f"--lines={limit}"]
    words += [f"--after-cursor={after}"] if after else []
    words += [f"--since=@{wanted.since.timestamp():.6f}"] if wanted.since else []
    # journalctl counts the very moment, too
    words += [f"--until=@{wanted.until.timestamp() - 1e-6:.6f}"] if wanted.until else []
    words += [f"--priority={LEVELS.index(wanted.level)}"] if wanted.level else []
    return [*words, *_matches(wanted)]


def rare(wanted: Search) -> list[str]:
    """Return the values that are looked for, `FIELD=value`, of those that few files have."""
    named = {REQUEST: wanted.request, SESSION: wanted.session}
    return [f"{name}={value}" for name, value in named.items() if value]


def _matches(wanted: Search) -> list[str]:
    """Return the matches of fields: those between two pluses go together, and either side of a plus will do."""
    named = {REQUEST: wanted.request, SESSION: wanted.session, USER: wanted.user, _UNIT: _unit(wanted.unit)}
    common = [f"{name}={value}" for name, value in named.items() if value]
    if wanted.node is None:
        return common
    return [*common, f"{_HOST}={wanted.node}", "+", *common, f"{NODE}={wanted.node}"]


def _unit(name: str | None) -> str | None:
    return f"{name}.service" if name and "." not in name else name


def entries(
    printed: str, known: Mapping[str, str], node: str | None = None
) -> Iterator[tuple[str, LogEntryView | None]]:
    """Yield the entries that journalctl has printed, each with its cursor. Anybody may have written anything there.

    `known` are the senders. None stands for a line that is neither from `node` nor about it, and only says so.
    """
    cursor = ""
    # not by `splitlines`: what ends a line for Unicode stands in texts as it is
    for line in filter(None, printed.split("\n")):
        try:
            told: dict[str, Any] = json.loads(line)
            cursor = str(told["__CURSOR"])
            entry = _entry(told, senders.sender(known, cursor))
            meant = node is None or node in {entry.node, _text(told, NODE)}
            yield cursor, entry if meant else None
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            yield cursor, _UNREADABLE


def _entry(told: Mapping[str, Any], node: str) -> LogEntryView:
    moment = datetime.fromtimestamp(int(told["__REALTIME_TIMESTAMP"]) / 1e6, UTC)
    host = _text(told, _HOST)
    return LogEntryView(
        time=f"{moment:%FT%T.%fZ}",
        node=node,
        host="" if host == node else host,
        unit=_text(told, _UNIT) or _text(told, _IDENTIFIER),
        level=_LEVELS.get(_text(told, "PRIORITY"), "info"),
        message="(too long to be shown here)" if told.get("MESSAGE", "") is None else _text(told, "MESSAGE"),
        request=_text(told, REQUEST),
        session=_text(told, SESSION),
        user=_text(told, USER),
    )


def _text(told: Mapping[str, Any], name: str) -> str:
    """Return a field as text; where it is there several times, each of its values once."""
    value = told.get(name)
    if isinstance(value, list) and not _bytes(value):
        return " ".join(filter(None, dict.fromkeys(map(_one, value))))
    return _one(value)


def _one(value: object) -> str:
    """Return a value as text; what is no text comes as its bytes, and what is too long as nothing."""
    if isinstance(value, list) and _bytes(value):
        return bytes(value).decode(errors="replace")
    return value if isinstance(value, str) else ""


def _bytes(values: list[Any]) -> bool:
    return all(isinstance(each, int) and 0 <= each < 256 for each in values)


def last(found: Sequence[tuple[str, LogEntryView | None]], limit: int) -> str | None:
    """Return the cursor after which there may be more."""
    return found[-1][0] if len(found) == limit else None
