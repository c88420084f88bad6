"""Time that passes while something stays as it is, by the clock of this process that nobody sets.

The database keeps no such time: whoever begins to lead begins to count.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID


class Unchanged:
    """Remembers since when each value is as it is."""

    def __init__(self) -> None:
        """Begin with nothing seen yet."""
        self._seen: dict[UUID, tuple[object, float]] = {}

    def for_s(self, values: Mapping[UUID, object], moment: float) -> dict[UUID, float]:
        """Return for how long each of some values has been as it is; what is not among them is forgotten."""
        before = self._seen
        self._seen = {
            id_: known if (known := before.get(id_)) and known[0] == value else (value, moment)
            for id_, value in values.items()
        }
        return {id_: moment - since for id_, (_, since) in self._seen.items()}
