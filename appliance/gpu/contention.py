"""Time that processes take from each other on a GPU, by when each of them had work there. Pure; all times are ns.

A GPU whose processes are not clients of MPS gives those with work slices of its time in turn, all alike. So a process
that computes beyond its window takes half of the time of the one that has the window, and both count all of it as their
own. From the intervals in which every process had work follows what each of them really had.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from appliance.gpu.layout import Interval, intervals_of

HORIZON_NS = 20_000_000_000
"""Work that is told so long after it was done is not settled any more."""
MOST_PROCESSES = 8
"""So many processes of a container may have work all the time; what it tells beyond that for long does not count."""
MOST_PARTS = 10_000
"""Parts of the time that are kept for a GPU."""
MOST_STEPS = 20_000
"""Processes in parts of the time that one look considers: whatever containers write, it ends soon."""

_POINTS = (
    (0.0469100770306680, 0.1184634425280945),
    (0.2307653449471585, 0.2393143352496832),
    (0.5000000000000000, 0.2844444444444444),
    (0.7692346550528415, 0.2393143352496832),
    (0.9530899229693320, 0.1184634425280945),
)
"""Points and weights of Gauss and Legendre between 0 and 1."""


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
        self._logs: dict[str, bytes] = {}
        self._seen: dict[str, dict[int, Interval]] = {}
        # ns of work that each may tell
        self._allowed: dict[str, int] = {}
        self._lost: defaultdict[str, float] = defaultdict(float)
        self._looked_ns = self._steps = 0

    def look(self, now_ns: int, logs: Mapping[str, bytes]) -> dict[str, int]:
        """Take the log of each container, and return the ns that each has lost since the last look.

        They are part of what it counted as its own, and fewer than none where it turns out to have had more.
        """
        self._forget(now_ns - HORIZON_NS)
        news = {
            container: list(self._news(container, intervals_of(log)))
            for container, log in logs.items()
            if log != self._logs.get(container)
        }
        self._logs = dict(logs)
        self._seen = {container: seen for container, seen in self._seen.items() if container in logs}
        self._allow(logs, now_ns)
        self._steps = 0
        # who tells most comes last, and holds up nobody
        for container in sorted(news, key=lambda container: sum(each.to_ns - each.from_ns for each in news[container])):
            for each in news[container]:
                self._add(container, each, max(now_ns - HORIZON_NS, 0), now_ns)
        lost = {container: int(self._lost[container]) for container in logs}
        self._lost = defaultdict(float, {container: self._lost[container] - lost[container] for container in logs})
        return {container: whole for container, whole in lost.items() if whole}

    def _news(self, container: str, log: Sequence[Interval]) -> Iterator[Interval]:
        """Yield what of a log was not there at the last look; nothing of what was there before the first one."""
        seen = self._seen.get(container)
        self._seen[container] = {each.number: each for each in log}
        for each in log if seen is not None else ():
            before = seen.get(each.number) if seen else None
            if before is None or (before.from_ns, before.slot) != (each.from_ns, each.slot):
                yield each
            elif before != each:
                yield each._replace(from_ns=before.to_ns, busy_ns=each.busy_ns - before.busy_ns)

    def _allow(self, containers: Iterable[str], now_ns: int) -> None:
        more, most = (now_ns - self._looked_ns) * MOST_PROCESSES, HORIZON_NS * MOST_PROCESSES
        self._allowed = {name: min(self._allowed.get(name, most) + more, most) for name in containers}
        self._looked_ns = now_ns

    def _add(self, container: str, interval: Interval, oldest_ns: int, now_ns: int) -> None:
        from_ns, to_ns = max(interval.from_ns, oldest_ns), min(interval.to_ns, now_ns)
        length = to_ns - from_ns
        if length <= 0 or interval.busy_ns <= 0 or length > self._allowed[container] or self._steps > MOST_STEPS:
            return
        self._allowed[container] -= length
        process = container, interval.slot
        part = min(1.0, interval.busy_ns / (interval.to_ns - interval.from_ns))
        first, last = self._cut(from_ns), self._cut(to_ns)
        for place in range(first, last):
            before = self._working[place]
            self._steps += len(before) + 1
            if self._steps > MOST_STEPS:
                return
            after = {**before, process: min(1.0, before.get(process, 0.0) + part)}
            length = self._starts[place + 1] - self._starts[place]
            for working, sign in ((before, -length), (after, length)):
                for name, lost in _lost(working).items():
                    self._lost[name] += sign * lost
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


def _lost(working: Working) -> dict[str, float]:
    """Return the part of the time that each container counts as its own and does not have.

    A process among k others that have work has one part of k + 1. Each has work in a part p of the time, whatever the
    others do, and the mean of 1 / (k + 1) is then the integral of the product of all 1 - p + p x over x from 0 to 1.
    """
    if len(working) < 2:
        return {}
    had: defaultdict[str, float] = defaultdict(float)
    idle: defaultdict[str, float] = defaultdict(lambda: 1.0)
    products = [(x, weight * prod(1 - part + part * x for part in working.values())) for x, weight in _POINTS]
    for (container, _), part in working.items():
        had[container] += part * sum(product / (1 - part + part * x) for x, product in products)
        idle[container] *= 1 - part
    # five points are exact for ten processes; beyond, all of them together have the time in which any of them has work
    scale = (1 - prod(idle.values())) / sum(had.values())
    return {container: 1 - nothing - had[container] * scale for container, nothing in idle.items()}
