"""Activity of containers on a GPU: who works there, and who only looks in. Pure.

Windows that move with everybody who launches something harm those who work: what runs then was begun by other windows.
So a container works once it has had work for some periods, and rests once it has had none for some.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST = 6
"""So many looks in a row with something to launch make a container work."""
REST = 2
"""So much more weighs a look without: who has work for less than two thirds of the time rests."""


class Activity:
    """The containers that work on one GPU."""

    def __init__(self) -> None:
        self._scores: dict[str, int] = {}
        self._working: set[str] = set()

    def look(self, wanting: Mapping[str, bool]) -> set[str]:
        """Take who has something to launch now, and return who works; nobody where nobody has worked yet."""
        self._scores = {
            name: min(max(self._scores.get(name, 0) + (1 if wants else -REST), 0), MOST)
            for name, wants in wanting.items()
        }
        working = {
            name for name, score in self._scores.items() if score == MOST or (score > 0 and name in self._working)
        }
        # where all who worked rest, the next ones are asked for nothing, and until one comes nothing moves
        self._working = working or {name for name, wants in wanting.items() if wants} or self._working & set(wanting)
        return self._working
