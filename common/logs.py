"""Log of a service: an event is an entry of the journal with fields of its own, elsewhere one line as `key=value`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import structlog

from common import journal
from common.journal import HungError, Journal

REQUEST, SESSION, NODE, USER = "PENSTOCK_REQUEST", "PENSTOCK_SESSION", "PENSTOCK_NODE", "PENSTOCK_USER"
"""Fields by which entries of the whole site are found again."""
WHOLE = "PENSTOCK_LINE"
"""Field with all of a line that is longer than what is shown of it."""
MAX_LINE = 4000
"""Bytes of a line; journalctl leaves out of its JSON what has 4096."""
_FIELDS = {
    "request_id": REQUEST,
    "session": SESSION,
    "session_id": SESSION,
    "node": NODE,
    "user": USER,
    "by": USER,
    "caller": USER,
}
_OF_CONTAINER = re.compile(r"session-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-\d+-\d+")
_CONTAINERS = ("id", "container", "key")
"""Keys of events that may have the id of a container, which has that of its session."""
_PRIORITIES = {"debug": "7", "info": "6", "warning": "4", "error": "3", "critical": "2"}
_line = structlog.processors.LogfmtRenderer(key_order=["level", "event"], bool_as_flag=False)

Event = MutableMapping[str, Any]


def write(service: str, *, journal_stream: str = "", node: str = "") -> None:
    """Write what this process logs to the journal where systemd has given it that, else to standard output.

    `journal_stream` is what systemd says of that output, `node` the one that the service is about.
    """
    native = journal.takes(journal_stream, sys.stdout.fileno()) if journal_stream else False
    always = {"SYSLOG_IDENTIFIER": service} | ({NODE: node} if node else {})
    sink = _JournalLogger(Journal(), always) if native else None
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _entry if native else _line,
        ],
        logger_factory=(lambda *_: sink) if native else structlog.PrintLoggerFactory(),
    )


class _JournalLogger:
    """What structlog writes events to. Where there is no journal they go to standard output, and so to it later; one
    that hangs would let standard output hang, too: they are dropped, and it is told how many once it takes some again.
    """

    def __init__(self, journal: Journal, always: Mapping[str, str]) -> None:
        self._journal = journal
        self._always = tuple(always.items())
        self._dropped = 0

    def msg(self, line: str, fields: tuple[tuple[str, str], ...]) -> None:
        try:
            if self._dropped:
                said = f'level=warning event="lines dropped" lines={self._dropped}'
                self._journal.write((("MESSAGE", said), ("PRIORITY", _PRIORITIES["warning"]), *self._always))
                self._dropped = 0
            self._journal.write((("MESSAGE", line), *self._always, *fields))
        except HungError:
            self._dropped += 1
        except OSError:
            structlog.PrintLogger().msg(line)

    debug = info = warning = error = critical = exception = msg


def _entry(logger: Any, method: str, event: Event) -> tuple[tuple[str, tuple[tuple[str, str], ...]], dict[str, Any]]:
    """Return an event as the journal's: its line for people, and its fields."""
    fields = (("PRIORITY", _PRIORITIES.get(event.get("level", ""), "6")), *dict.fromkeys(_fields(event)))
    line = str(_line(logger, method, event))
    shown = _shown(line)
    return (shown, fields if shown == line else (*fields, (WHOLE, line))), {}


def _shown(line: str) -> str:
    """Return a line that journalctl prints to programs: of a longer one its beginning, and its end, which says why."""
    told = line.encode(errors="replace")
    if len(told) <= MAX_LINE:
        return line
    head, tail = told[: MAX_LINE // 4], told[-MAX_LINE // 2 :]
    return f"{head.decode(errors='ignore')} … {tail.decode(errors='ignore')}"


def _fields(event: Event) -> Iterator[tuple[str, str]]:
    for key, value in event.items():
        if key in _FIELDS and value:
            yield _FIELDS[key], str(value)
        if key in _CONTAINERS and (found := _OF_CONTAINER.search(str(value))):
            yield SESSION, found[1]
