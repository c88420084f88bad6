"""Order of names as people count: node2 before node10."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"([0-9]+)")


def natural(name: str) -> tuple[list[str | int], str]:
    """Return what names are sorted by: texts as they are, and each number in them as one."""
    return [int(part) if at % 2 else part for at, part in enumerate(_NUMBER.split(name))], name
