"""Activity of containers on a GPU: who works there, and who only looks in. Pure.

Windows that move with everybody who launches something harm those who work: what runs then was begun by other windows.
So a container works once it has had something to launch for longer than it may wait for its window, and rests once
it has had nothing for some looks in a row.
"""

from __future__ import annotations

from collections.abc import Iterable

from appliance.gpu.timetable import WIDER, Sharer

MOST = 8
"""So many looks with something to launch make a container work that gets its share among the others as well."""
SOON = 2
"""The same for one with more than half of the GPU, which does not, and never waits for a window."""
REST = 4
"""So much more weighs a look without: who has something to launch for less than four fifths of the time rests."""


class Activity:
    """The containers that work on one GPU."""

    def __init__(self) -> None:
        self._scores: dict[str, int] = {}
        self._working: set[str] = set()

    def look(self, sharers: Iterable[Sharer]) -> set[str]:
        """Take who has something to launch now, and return who works; nobody where nobody has worked yet."""
        present = list(sharers)
        total = sum(sharer.milli for sharer in present)
        before, self._scores = self._scores, {}
        working = set()
        for sharer in present:
            name, score = sharer.container, before.get(sharer.container, 0)
            score = min(max(score + (1 if sharer.active else -REST), 0), MOST)
            if name not in self._working and score >= _looks(sharer, total):
                score = MOST
            if score == MOST or (score and name in self._working):
                working.add(name)
            self._scores[name] = score
        # where all who worked rest, the next ones are asked for nothing, and until one comes nothing moves
        self._working = (
            working
            or {sharer.container for sharer in present if sharer.active}
            or self._working & {sharer.container for sharer in present}
        )
        return self._working


def _looks(sharer: Sharer, total: int) -> int:
    """Return the looks with something to launch after which a container works that has rested."""
    return SOON if WIDER * sharer.milli > total else MOST
