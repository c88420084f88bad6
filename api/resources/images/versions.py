"""The order of an image's tags, so that a name alone can mean the newest. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

Key = tuple[tuple[int, int, str], ...]


def newest(tags: Iterable[str]) -> str:
    """Return the tag that a name alone means: `latest` where there is one, as for Docker, else the highest version."""
    return max(tags, key=lambda tag: (tag == "latest", key(tag), tag))


def key(tag: str) -> Key:
    """Return what orders tags: 3.11 after 3.9, 3.12 after 3.12rc1 and 3.12-slim, and a version after a word."""
    parts = [(_NUMBER, int(part), "") if part.isdigit() else (_WORD, 0, part.lower()) for part in _parts(tag)]
    return (*parts, (_END, 0, ""))


_WORD, _END, _NUMBER = range(3)


def _parts(tag: str) -> list[str]:
    without_v = re.sub(r"^[vV](?=[0-9])", "", tag)
    return re.findall(r"[0-9]+|[A-Za-z]+", without_v)
