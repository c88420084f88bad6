"""Time that processes take from each other on a GPU, by when each of them had work there. Pure; all times are ns.

A GPU whose processes are not clients of MPS gives those with work slices of its time in turn, all alike. So a process
that computes beyond its window takes half of the time of the one that has the window, and both count all of it as their
own. From the intervals in which every process had work follows what each of them really had.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from appliance.gpu.layout import Interval, intervals_of

HORIZON_NS = 20_000_000_000
"""Work that is told so long after it was done is not settled any more."""
MOST_PROCESSES = 8
"""So many processes of a container may have work all the time; what it tells beyond that for long does not count."""
GRID_NS = 4_000_000
"""A container may tell one interval in so long on average; more are joined to steps of that length."""
MOST_AT_ONCE = 64
"""So many intervals it may tell at once, after a time in which it told few."""
MOST_STEPS = 3_000
"""Processes in parts of the time, and four for each part, that one look considers for a container.

The next looks go on with what is left.
"""
MOST_PENDING = 1_000
"""Intervals of a container that are left for the next looks."""
MOST_PARTS = 100_000
"""Parts of the time that are kept for a GPU: those of nine containers that tell as much as they may."""

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


class Stretch(NamedTuple):
    """A time in which a process had work, and for which part of it."""

    slot: int
    from_ns: int
    to_ns: int
    part: float


class Contention:
    """What the containers on one GPU lost to each other."""

    def __init__(self) -> None:
        # from each start up to the next one, in order; behind the last there is nothing
        self._starts = [0]
        self._working: list[Working] = [{}]
        # what each container loses of such a time
        self._losing: list[Mapping[str, float]] = [{}]
        self._logs: dict[str, bytes] = {}
        self._seen: dict[str, dict[int, Interval]] = {}
        self._pending: dict[str, deque[Stretch]] = {}
        # ns of work that each may tell, and ns for which it has told no interval
        self._allowed: dict[str, int] = {}
        self._quiet: dict[str, int] = {}
        self._lost: defaultdict[str, float] = defaultdict(float)
        self._looked_ns = 0

    def look(self, now_ns: int, logs: Mapping[str, bytes]) -> dict[str, int]:
        """Take the log of each container, and return the ns that each has lost since the last look.

        They are part of what it counted as its own, and fewer than none where it turns out to have had more.
        """
        oldest_ns = max(now_ns - HORIZON_NS, 0)
        self._forget(oldest_ns)
        self._allow(logs, now_ns)
        self._seen = {container: seen for container, seen in self._seen.items() if container in logs}
        self._pending = {name: self._pending.get(name, deque(maxlen=MOST_PENDING)) for name in logs}
        for container, log in logs.items():
            if log != self._logs.get(container):
                news = list(self._news(container, intervals_of(log)))
                self._pending[container].extend(self._bounded(container, news, oldest_ns, now_ns))
            self._reckon(container, oldest_ns)
        self._logs = dict(logs)
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
        passed = now_ns - self._looked_ns
        more, most = passed * MOST_PROCESSES, HORIZON_NS * MOST_PROCESSES
        self._allowed = {name: min(self._allowed.get(name, most) + more, most) for name in containers}
        longest = MOST_AT_ONCE * GRID_NS
        self._quiet = {name: min(self._quiet.get(name, longest) + passed, longest) for name in containers}
        self._looked_ns = now_ns

    def _bounded(self, container: str, news: Iterable[Interval], oldest_ns: int, now_ns: int) -> list[Stretch]:
        """Return what counts of what a container tells: as it tells it, or coarsely if that is too much."""
        stretches = []
        for each in news:
            from_ns, to_ns = max(each.from_ns, oldest_ns), min(each.to_ns, now_ns)
            if from_ns < to_ns and each.busy_ns > 0 and to_ns - from_ns <= self._allowed[container]:
                self._allowed[container] -= to_ns - from_ns
                part = min(1.0, each.busy_ns / (each.to_ns - each.from_ns))
                stretches.append(Stretch(each.slot, from_ns, to_ns, part))
        if len(stretches) * GRID_NS > self._quiet[container]:
            return _joined(stretches, now_ns)
        self._quiet[container] -= len(stretches) * GRID_NS
        return stretches

    def _reckon(self, container: str, oldest_ns: int) -> None:
        """Add what a container has told to what is known of the time, as far as one look gets with it."""
        pending, steps = self._pending[container], 0
        while pending and steps < MOST_STEPS:
            slot, from_ns, to_ns, part = pending.popleft()
            if to_ns <= oldest_ns:
                continue
            place, last = self._cut(max(from_ns, oldest_ns)), self._cut(to_ns)
            while place < last and steps < MOST_STEPS:
                steps += len(self._working[place]) + 4
                self._put(place, (container, slot), part)
                place += 1
            if place < last:
                pending.appendleft(Stretch(slot, self._starts[place], to_ns, part))

    def _put(self, place: int, process: Process, part: float) -> None:
        working = self._working[place]
        working = {**working, process: min(1.0, working.get(process, 0.0) + part)}
        before, after = self._losing[place], _lost(working)
        length = self._starts[place + 1] - self._starts[place]
        for name, lost in after.items():
            self._lost[name] += (lost - before.get(name, 0.0)) * length
        self._working[place], self._losing[place] = working, after

    def _cut(self, at_ns: int) -> int:
        """Return the place of the part that begins at a time; what it is cut from keeps the same processes."""
        place = bisect_right(self._starts, at_ns) - 1
        if self._starts[place] != at_ns:
            place += 1
            self._starts.insert(place, at_ns)
            self._working.insert(place, self._working[place - 1])
            self._losing.insert(place, self._losing[place - 1])
        return place

    def _forget(self, before_ns: int) -> None:
        place = max(bisect_right(self._starts, before_ns) - 1, len(self._starts) - MOST_PARTS)
        if place > 0:
            del self._starts[:place], self._working[:place], self._losing[:place]


def _joined(stretches: Iterable[Stretch], now_ns: int) -> list[Stretch]:
    """Return the same work between steps of time, of no more processes than may have work all the time."""
    joined: defaultdict[int, list[Stretch]] = defaultdict(list)
    for slot, from_ns, to_ns, part in sorted(stretches, key=lambda each: each.from_ns):
        of_slot = joined[slot % MOST_PROCESSES]
        begin, end, work = from_ns - from_ns % GRID_NS, min(to_ns + -to_ns % GRID_NS, now_ns), part * (to_ns - from_ns)
        if of_slot and begin < of_slot[-1].to_ns:
            before = of_slot.pop()
            begin, end = before.from_ns, max(before.to_ns, end)
            work += before.part * (before.to_ns - before.from_ns)
        of_slot.append(Stretch(slot % MOST_PROCESSES, begin, end, min(1.0, work / (end - begin))))
    return [each for of_slot in joined.values() for each in of_slot]


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
