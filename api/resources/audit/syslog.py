"""Lines of the audit log as messages of syslog (RFC 5424), and as what of them goes over a connection. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from api.resources.audit.chain import Entry

AUDIT = 13
"""The facility "log audit"."""
SEVERITIES: Mapping[str, int] = {"done": 5, "refused": 4, "failed": 4, "unreadable": 2}
"""Notice and warning, by the result of a line; critical for what is not as it was written."""
MAX_SEQUENCE = 2**31 - 1
"""The largest `sequenceId` there is; after it comes 1."""
MAX_DATAGRAM = 60_000
"""Bytes of a message that goes by UDP."""


def message(line: bytes, entry: Entry, host: str) -> bytes:
    """Return the message that carries a line as it stands in the log, with its codes."""
    priority = AUDIT * 8 + SEVERITIES.get(entry["result"], SEVERITIES["failed"])
    sequence = (entry["seq"] - 1) % MAX_SEQUENCE + 1
    about = f'[meta sequenceId="{sequence}"][origin software="penstock"]'
    return f"<{priority}>1 {entry['time']} {host} penstock - {entry['action'][:32]} {about} ".encode() + line


def datagram(line: bytes, entry: Entry, host: str) -> bytes:
    """Return the message for UDP: one that is too large for it comes without the changes, and without its codes."""
    if len(told := message(line, entry, host)) <= MAX_DATAGRAM:
        return told
    short = {name: value for name, value in entry.items() if name not in ("previous", "mac", "deleted")}
    return message(json.dumps({**short, "changes": [], "more_changes": True}).encode(), entry, host)


def framed(told: bytes) -> bytes:
    """Return a message as it goes over a connection: its length before it (RFC 6587, RFC 5425)."""
    return b"%d %b" % (len(told), told)
