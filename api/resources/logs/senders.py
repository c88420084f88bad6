"""Senders of lines, by the files in which the master keeps them: a line itself may name any node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILES = "*/*.journal*"
"""A folder for each node, below that of the gathered journals; a file whose writer was killed ends with `~`."""
_HEAD = 88
_SIGNATURE = b"LPKSHHRH"


def names(folder: Path) -> dict[str, str]:
    """Return the names of nodes by the ids of their files, which each of their lines has in its cursor."""
    found = {}
    for path in folder.glob(FILES):
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD)
        except FileNotFoundError:  # the oldest goes at any time
            continue
        if head.startswith(_SIGNATURE) and len(head) == _HEAD:
            # https://systemd.io/JOURNAL_FILE_FORMAT: `seqnum_id`, which files keep that follow each other
            found[head[72:].hex()] = path.parent.name
    return found


def sender(known: Mapping[str, str], cursor: str) -> str:
    """Return who has sent the line of a cursor, `s=ID;i=…`."""
    return known.get(cursor.partition(";")[0].removeprefix("s="), "")
