"""Time that processes take from each other on a GPU, by when each of them had work there. Pure; all times are ns.

A GPU whose processes are not clients of MPS gives those with work slices of its time in turn, all alike. So a process
that computes beyond its window takes half of the time of the one that has the window, and for each both believe that all
of it was theirs. From the intervals in which every process had work follows what each of them really had.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

HORIZON_NS = 20_000_000_000
"""Work that is told so long after it was done is not settled any more."""
MOST_PARTS = 20_000
"""Parts of the time that are kept for a GPU, and that are looked at in one look: whatever containers write, it ends."""

_POINTS = (
    (0.0469100770306680, 0.1184634425280945),
    (0.2307653449471585, 0.2393143352496832),
    (0.5000000000000000, 0.2844444444444444),
    (0.7692346550528415, 0.2393143352496832),
    (0.9530899229693320, 0.1184634425280945),
)
"""Points and weights of Gauss and Legendre between 0 and 1."""


@dataclass(frozen=True)
class Interval:
    """A time in which a process, named by its slot, had work on a GPU: `busy_ns` of it, with pauses of less than a
    millisecond. One that has a number already may have grown since.
    """

    number: int
    from_ns: int
    to_ns: int
    busy_ns: int
    slot: int


Process = tuple[str, int]
"""A container, and the slot of a process in its account."""
Working = Mapping[Process, float]
"""Processes that have work, and for which part of the time."""


class Contention:
    """What the containers on one GPU lost to each other."""

    def __init__(self) -> None:
        # from each start up to the next one, in order; behind the last there is nothing
        self._starts = [0]
        self._working: list[Working] = [{}]
        self._seen: dict[str, dict[int, Interval]] = {}
        self._lost: Counter[str] = Counter()
        self._looked = 0

    def look(self, now_ns: int, logs: Mapping[str, Sequence[Interval]]) -> dict[str, int]:
        """Take the latest intervals of each container, and return the ns that each has lost since the last look: of what
        it counted as its own. They are fewer than none where others turn out to have had less.
        """
        self._forget(now_ns - HORIZON_NS)
        self._looked = 0
        news = {container: list(self._news(container, log)) for container, log in logs.items()}
        self._seen = {container: {each.number: each for each in log} for container, log in logs.items()}
        # who writes most comes last, and waits for nobody
        for container in sorted(news, key=lambda container: len(news[container])):
            for each in news[container]:
                self._add((container, each.slot), each, now_ns)
        lost = {container: int(self._lost[container]) for container in logs}
        self._lost = Counter({container: self._lost[container] - whole for container, whole in lost.items()})
        return {container: whole for container, whole in lost.items() if whole}

    def _news(self, container: str, log: Sequence[Interval]) -> Iterator[Interval]:
        """Yield what of a log was not there at the last look; nothing of what was there before the first one."""
        seen = self._seen.get(container)
        for each in log if seen is not None else ():
            before = seen.get(each.number) if seen else None
            if before is None or (before.from_ns, before.slot) != (each.from_ns, each.slot):
                yield each
            else:
                yield Interval(each.number, before.to_ns, each.to_ns, each.busy_ns - before.busy_ns, each.slot)

    def _add(self, process: Process, interval: Interval, now_ns: int) -> None:
        from_ns, to_ns = max(interval.from_ns, self._starts[0]), min(interval.to_ns, now_ns)
        if from_ns >= to_ns or self._looked > MOST_PARTS:
            return
        part = max(0.0, min(1.0, interval.busy_ns / (interval.to_ns - interval.from_ns)))
        first, last = self._cut(from_ns), self._cut(to_ns)
        self._looked += last - first
        for place in range(first, last):
            before = self._working[place]
            after = {**before, process: min(1.0, before.get(process, 0.0) + part)}
            length = self._starts[place + 1] - self._starts[place]
            for container, change in _change(before, after).items():
                self._lost[container] += change * length  # type: ignore[assignment]
            self._working[place] = after

    def _cut(self, at_ns: int) -> int:
        """Return the place of the part that begins at a time; what it is cut from keeps the same processes."""
        place = bisect_right(self._starts, at_ns) - 1
        if self._starts[place] != at_ns:
            place += 1
            self._starts.insert(place, at_ns)
            self._working.insert(place, self._working[place - 1])
        return place

    def _forget(self, before_ns: int) -> None:
        place = max(bisect_right(self._starts, before_ns) - 1, len(self._starts) - MOST_PARTS)
        if place > 0:
            del self._starts[:place], self._working[:place]


def _change(before: Working, after: Working) -> dict[str, float]:
    lost, lost_before = _lost(after), _lost(before)
    return {container: part - lost_before.get(container, 0.0) for container, part in lost.items()}


def _lost(working: Working) -> dict[str, float]:
    """Return the part of the time that each container counts as its own and does not have.

    A process among k others that have work has one part of k + 1. Each has work in a part p of the time, whatever the
    others do, and the mean of 1 / (k + 1) is then the integral of the product of all 1 - p + p x over x from 0 to 1.
    """
    had: Counter[str] = Counter()
    idle: dict[str, float] = {}
    products = [(x, weight * prod(1 - part + part * x for part in working.values())) for x, weight in _POINTS]
    for (container, _), part in working.items():
        had[container] += part * sum(product / (1 - part + part * x) for x, product in products)  # type: ignore[assignment]
        idle[container] = idle.get(container, 1.0) * (1 - part)
    return {container: 1 - nothing - had[container] for container, nothing in idle.items()}
