"""Places inside a document: as people write them, `nodes[0].name`, and as JSON pointers (RFC 6901), `/nodes/0/name`."""

from __future__ import annotations

import re
from collections.abc import Sequence

Path = tuple[int | str, ...]

_PART = re.compile(r"[^.\[\]]+")
_INDEX = re.compile(r"0|[1-9][0-9]*")


def dotted(path: Sequence[int | str]) -> str:
    """Return a path as people write it: `("nodes", 0, "name")` is `nodes[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def from_dotted(text: str) -> Path:
    """Return the path that people write so; a number is a place in a list, in brackets or not."""
    return tuple(_part(part) for part in _PART.findall(text))


def pointer(path: Sequence[int | str]) -> str:
    """Return a path as a JSON pointer; the whole document is the empty text."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def from_pointer(text: str) -> Path:
    """Return the path of a JSON pointer; a number is taken for a place in a list."""
    return tuple(_part(part.replace("~1", "/").replace("~0", "~")) for part in text.split("/")[1:])


def _part(text: str) -> int | str:
    return int(text) if _INDEX.fullmatch(text) else text
