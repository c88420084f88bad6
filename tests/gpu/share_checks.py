"""Shares of time on a card, judged from outside: each program counts what has ended, and we read that by our clock."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from common.gpu.kinds import Compute
from tests.gpu.card import Card, Planner, Program, ProgramError, Tenant
from tests.gpu.counters import Counters, open_counters
from tests.gpu.outcomes import Figure, NotJudged
from tests.gpu.rows import EVEN, LONGEST_REQUEST_MS, MEAN_REQUEST_MS, REQUESTS, ROWS, Row, Work

POINTS = 3.0
"""Points of the card's time by which a share may differ."""
LEAST_USED = 95.0
SETTLING_S = 2.0
READY_S = 60.0
QUICK_S = 1.0
ALONE_S = 12.0
OVERHEAD = 1.0
"""Per cent by which a program that has the whole card may be slower with the library."""


@dataclass
class Runner:
    """A program of a tenant that computes."""

    tenant: Tenant
    work: Work
    program: Program
    counters: Counters
    lengths: dict[str, float]
    _ends: list[tuple[float, Counters]] = field(default_factory=list)

    def mark(self) -> None:
        """Begin to judge from here on."""
        self.counters.longest_ns = 0
        self._ends = [(time.monotonic(), _copy(self.counters))]

    def look(self) -> None:
        """Note when work of it has ended: the first time and the last time count."""
        if list(self.counters.done) != list(self._ends[-1][1].done):
            self._ends = [*self._ends[:2], (time.monotonic(), _copy(self.counters))]

    @property
    def did_end(self) -> bool:
        """Whether work ended twice since the mark, so that there is a time between."""
        return len(self._ends) > 2

    def since(self) -> tuple[float, Counters]:
        """Return seconds, and what was done in them: from the first end of work to the last, where it ended twice."""
        (begun, before), (ended, after) = self._ends[1 if self.did_end else 0], self._ends[-1]
        found = _copy(after)
        for name in ("steps", "working_ns"):
            setattr(found, name, getattr(after, name) - getattr(before, name))
        for number in range(len(found.done)):
            found.done[number] -= before.done[number]
        return (ended if self.did_end else time.monotonic()) - begun, found

    def computed_s(self, done: Counters) -> float:
        """Return the seconds that its kernels take on a card that nobody else uses."""
        return sum(done.done[number] * self.lengths[part[0]] for number, part in enumerate(self.work.parts)) / 1e9


def _copy(counters: Counters) -> Counters:
    return Counters.from_buffer_copy(ctypes.string_at(ctypes.addressof(counters), ctypes.sizeof(counters)))


@dataclass(frozen=True)
class Got:
    """What a tenant got since the mark, in per cent of the card, and its steps, in ms."""

    part: float
    part_while_working: float
    longest_ms: float
    mean_ms: float


class Together:
    """Programs of tenants that compute beside each other, each (share, work, how many); `bare`: without the library."""

    def __init__(
        self,
        card: Card,
        tenants: Sequence[tuple[int, Work, int]],
        mode: Compute = Compute.STRICT,
        *,
        bare: bool = False,
    ) -> None:
        names = sorted({part[0] for _, work, _ in tenants for part in work.parts})
        found = card.run(card.bare, "calibrate", *names)
        self._card, self._rounds, self._lengths, self._bare = card, found["rounds"], found["lengths"], bare
        self.tenants = [card.tenant(0, milli, mode) for milli, _, _ in tenants]
        self.planner = Planner(self.tenants, mode)
        self.planner.plan()
        self.runners = [
            [self._start(tenant, work, number) for number in range(programs)]
            for tenant, (_, work, programs) in zip(self.tenants, tenants, strict=True)
        ]

    def _start(self, tenant: Tenant, work: Work, number: int) -> Runner:
        path = tenant.folder / f"counters-{number}"
        spec = json.dumps({"work": asdict(work), "rounds": self._rounds})
        environment = self._card.bare if self._bare else tenant.environment
        program = self._card.start(environment, "work", spec, str(path))
        return Runner(tenant, work, program, open_counters(path), self._lengths)

    def begin(self) -> None:
        """Let all begin when all are ready; raises ProgramError."""
        everyone = self._everyone
        until = time.monotonic() + READY_S
        while not all(runner.counters.ready for runner in everyone):
            ended = next((runner for runner in everyone if runner.program.process.poll() is not None), None)
            if ended or time.monotonic() > until:
                # its next line is its complaint
                (ended or everyone[0]).program.line()
                raise ProgramError("a program was not ready in time")
            time.sleep(0.01)
        for runner in everyone:
            runner.counters.go = 1
        self.planner.watch(0.2 if self._card.quick else SETTLING_S)

    def judge(self, seconds: float) -> list[Got]:
        """Return what each tenant got in the next seconds."""
        for runner in self._everyone:
            runner.mark()
        self.planner.watch(QUICK_S if self._card.quick else seconds, self._look)
        if self._card.quick and not all(runner.did_end for runner in self._everyone):
            raise NotJudged("quick: work is longer than it was watched")
        return [self._got(runners) for runners in self.runners]

    @property
    def _everyone(self) -> list[Runner]:
        return [runner for runners in self.runners for runner in runners]

    def _look(self) -> None:
        for runner in self._everyone:
            runner.look()

    def _got(self, runners: Sequence[Runner]) -> Got:
        if any(runner.program.process.poll() is not None for runner in runners):
            raise ProgramError("a program ended while it was judged")
        part, working, steps, longest = 0.0, 0.0, 0, 0
        for runner in runners:
            seconds, done = runner.since()
            part += runner.computed_s(done) / seconds
            # the time in which it had work: all of it, but for the pauses between steps that begin at times
            working += (done.working_ns / 1e9 if runner.work.every_ms else seconds) / seconds / len(runners)
            steps, longest = steps + done.steps, max(longest, done.longest_ns)
        total_ms = sum(runner.since()[1].working_ns for runner in runners) / 1e6
        working = min(working, 1.0) or 1.0
        return Got(100 * part, 100 * part / working, longest / 1e6, total_ms / steps if steps else 0.0)

    def pause(self, number: int, paused: bool) -> None:
        """Let the programs of a tenant rest, or go on."""
        for runner in self.runners[number]:
            runner.counters.pause = int(paused)


def row(name: str, card: Card) -> list[Figure]:
    """Each tenant gets its share while it has work, nothing of the card is lost, and nobody waits for long."""
    judged: Row = ROWS[name]
    figures, used = [_alone(card, work) for _, work in judged.tenants if work.streams], 0.0
    together = Together(card, [(milli, work, 1) for milli, work in judged.tenants])
    together.begin()
    got = together.judge(judged.card_seconds)
    for number, (milli, work) in enumerate(judged.tenants):
        one, share = got[number], milli / 10
        said = f"tenant {number + 1} of {share:g} %"
        working = one.part / one.part_while_working if one.part_while_working else 1.0
        used += one.part + max(1 - working, 0) * share
        if work is REQUESTS:
            figures += [
                Figure(f"{said}: mean of a request", round(one.mean_ms, 1), "ms", MEAN_REQUEST_MS, bound="most"),
                Figure(f"{said}: longest", round(one.longest_ms, 1), "ms", LONGEST_REQUEST_MS, bound="most"),
            ]
            continue
        longest = judged.longest_ms[number]
        figures += [
            Figure(f"{said}: part while it has work", round(one.part_while_working, 2), "%", share, POINTS),
            Figure(f"{said}: longest step", round(one.longest_ms, 1), "ms", longest, bound="most"),
        ]
    return [*figures, Figure("used in all", round(used, 2), "%", LEAST_USED, bound="least", note="unused shares count")]


def _alone(card: Card, work: Work) -> Figure:
    """Tell what a program with several streams has of a card that nobody else uses, without the library: on some cards
    its kernels hold each other up.
    """
    together = Together(card, [(1000, work, 1)], bare=True)
    together.begin()
    [got] = together.judge(ALONE_S)
    card.end_programs()
    return Figure("such a program, alone and without the library", round(got.part, 2), "%")


def row_checks() -> dict[str, Callable[[Card], list[Figure]]]:
    """Return a check for each row, by its name."""
    return {f"row: {name}": partial(row, name) for name in ROWS}


def resized_time(card: Card) -> list[Figure]:
    """Another share of time holds a second after it was given, while both compute."""
    together = Together(card, [(300, EVEN, 1), (700, EVEN, 1)])
    together.begin()
    before = together.judge(8)
    for tenant, milli in zip(together.tenants, (600, 400), strict=True):
        tenant.change(0, milli)
    together.planner.watch(0.5 if card.quick else 1)
    after = together.judge(8)
    return [
        Figure("the first of 30 %", round(before[0].part, 2), "%", 30, POINTS),
        Figure("the same with 60 %", round(after[0].part, 2), "%", 60, POINTS),
        Figure("the other one with 40 %", round(after[1].part, 2), "%", 40, POINTS),
    ]


def fair(card: Card) -> list[Figure]:
    """In fair mode a tenant has the time of those who rest, and gives it back."""
    together = Together(card, [(300, EVEN, 1), (700, EVEN, 1)], Compute.FAIR)
    together.begin()
    both = together.judge(8)
    together.pause(1, paused=True)
    together.planner.watch(1 if card.quick else 2)
    alone = together.judge(6)
    together.pause(1, paused=False)
    together.planner.watch(1 if card.quick else 2)
    again = together.judge(6)
    return [
        Figure("30 % beside one that works", round(both[0].part, 2), "%", 30, POINTS),
        Figure("30 % beside one that rests", round(alone[0].part, 2), "%", LEAST_USED, bound="least"),
        Figure("30 % when the other works again", round(again[0].part, 2), "%", 30, POINTS),
    ]


def processes(card: Card) -> list[Figure]:
    """Two processes of a tenant have one share between them."""
    together = Together(card, [(300, EVEN, 2), (700, EVEN, 1)])
    together.begin()
    got = together.judge(12)
    return [
        Figure("two processes of 30 %", round(got[0].part, 2), "%", 30, POINTS),
        Figure("one of 70 %", round(got[1].part, 2), "%", 70, POINTS),
    ]


def undisturbed(card: Card) -> list[Figure]:
    """A program that has the whole card is as fast with the library as without."""
    environments = (card.bare, card.tenant().environment) * (1 if card.quick else 3)
    rates = [_rate(card, environment) for environment in environments]
    best = max(rates[1::2]) / max(rates[::2])
    return [Figure("slower with the library", round(100 * (1 - best), 2), "%", OVERHEAD, bound="most")]


def _rate(card: Card, environment: dict[str, str]) -> float:
    rounds = card.run(card.bare, "calibrate", "busy_5us")["rounds"]
    path = card.folder / f"rate-{time.monotonic_ns()}"
    spec = json.dumps({"work": asdict(ROWS["training, small kernels and bursts"].tenants[1][1]), "rounds": rounds})
    program, counters = card.start(environment, "work", spec, str(path)), open_counters(path)
    until = time.monotonic() + READY_S
    while not counters.ready and program.process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    counters.go = 1
    time.sleep(0.2)
    before, begun = counters.steps, time.monotonic()
    time.sleep(0.5 if card.quick else 4)
    rate = (counters.steps - before) / (time.monotonic() - begun)
    program.kill()
    if not rate:
        raise ProgramError("a program ended before it computed")
    return rate
