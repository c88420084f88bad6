"""What containers owe and are owed in fair mode, and what of it is forgotten."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from appliance.gpu.balance import MOST_NS, PARTS, Claim, claim, forgotten
from appliance.gpu.layout import Total

NOW = 1_000_000
MOST_PERIODS = 2
"""So many periods are owed at most in the model; where nothing is forgotten it becomes twenty."""


@pytest.mark.parametrize(
    ("total", "lost", "forgot", "expected"),
    [
        pytest.param(Total(debt_ns=70), 0, 0, Claim(70, 0), id="debt"),
        pytest.param(Total(debt_ns=-70, owed_ns=30), 0, 0, Claim(0, 30), id="what a launch has left is no claim"),
        pytest.param(Total(debt_ns=70, settled_ns=5), 105, 0, Claim(0, 30), id="lost, and not yet taken off its debt"),
        pytest.param(Total(owed_ns=70, settled_ns=5), -95, 0, Claim(30, 0), id="had more, and not yet taken off"),
        pytest.param(Total(owed_ns=70, forgotten_ns=5), 0, 25, Claim(0, 50), id="not yet forgotten of what is owed"),
        pytest.param(Total(debt_ns=70, forgotten_ns=5), 0, -15, Claim(50, 0), id="not yet forgotten of its debt"),
        pytest.param(Total(opens_ns=NOW + 40), 0, 0, Claim(40, 0), id="a part of a window that is left to pay"),
        pytest.param(Total(opens_ns=NOW - 40), 0, 0, Claim(), id="a part of one that has passed"),
        pytest.param(Total(debt_ns=1 << 62, owed_ns=1 << 62), 0, 0, Claim(MOST_NS, MOST_NS), id="nonsense"),
    ],
)
def test_a_claim_is_what_the_library_will_have_taken(total: Total, lost: int, forgot: int, expected: Claim) -> None:
    assert claim(total, lost, forgot, NOW) == expected


def test_what_is_owed_by_somebody_stays() -> None:
    assert forgotten({"a": Claim(100, 0), "b": Claim(0, 60), "c": Claim(0, 40)}) == {}
    assert forgotten({}) == {}


def test_of_what_nobody_owes_a_part_is_forgotten_by_each_as_much_as_is_owed_to_it() -> None:
    claims = {"a": Claim(1000 * PARTS, 0), "b": Claim(0, 3000 * PARTS), "c": Claim(0, 1000 * PARTS)}
    assert forgotten(claims) == {"b": 2250, "c": 750}


def test_of_a_debt_to_nobody_a_part_is_forgotten() -> None:
    claims = {"a": Claim(3000 * PARTS, 0), "b": Claim(0, 1000 * PARTS), "c": Claim(1000 * PARTS, 0)}
    assert forgotten(claims) == {"a": -2250, "c": -750}


@dataclass
class Worker:
    """A container in a model of fair mode, period by period: all times are parts of a period."""

    milli: int
    works: int
    rests: int
    longest: float
    debt: float = 0
    owed: float = 0
    got: float = 0

    def is_active(self, period: int) -> bool:
        """Whether it has work in a period."""
        return period % (self.works + self.rests) < self.works

    def loses(self, time: float) -> None:
        """Let it be given back what it lost."""
        self.got -= time
        paid = min(self.debt, time)
        self.debt, self.owed = self.debt - paid, self.owed + time - paid


def takes(worker: Worker, active: list[Worker], windows: dict[int, float], time: float) -> None:
    """Let a worker launch for so long in windows of others, of which it gets half."""
    others = [each for each in active if each is not worker]
    room = sum(windows[id(each)] for each in others)
    worker.got += time / 2
    for each in others:
        each.loses(time / 2 * windows[id(each)] / room)


def step(workers: list[Worker], period: int, rng: random.Random) -> None:
    """One period: windows, what of them is left to pay, launches that are owed or run over, and the agent's looks."""
    active = [each for each in workers if each.is_active(period)]
    total = sum(each.milli for each in active)
    windows, free = {}, 0.0
    for each in active:
        if period and not each.is_active(period - 1):
            # windows that passed unused have paid, and what was owed to it meanwhile is no more
            each.debt, each.owed = 0, max(0, each.owed - each.rests)
        windows[id(each)] = window = each.milli / total
        paid = min(each.debt, window)
        each.debt, each.got, free = each.debt - paid, each.got + window - paid, free + paid
    for each in sorted(active, key=lambda one: one.owed, reverse=True):
        used = min(each.owed, free)
        each.owed, each.got, free = each.owed - used, each.got + used, free - used
        if len(active) > 1:
            # owed, and nobody leaves a window: it launches all the same, and half of it is found to be lost
            extra = min(each.owed, 1 - windows[id(each)])
            each.owed -= extra / 2
            takes(each, active, windows, extra)
            if rng.random() < 0.3 and each.debt < windows[id(each)]:
                over = min(rng.uniform(0, each.longest), 1 - windows[id(each)])
                each.debt += over / 2
                takes(each, active, windows, over)
    for _ in range(4):
        claims = {str(index): Claim(int(each.debt * 1e9), int(each.owed * 1e9)) for index, each in enumerate(active)}
        for name, ns in forgotten(claims).items():
            each = active[int(name)]
            each.owed, each.debt = max(0, each.owed - max(ns, 0) / 1e9), max(0, each.debt + min(ns, 0) / 1e9)


def some_workers(rng: random.Random) -> list[Worker]:
    """One that works all the time, and others that work and rest at random; together they have the GPU."""
    count = rng.randint(2, 5)
    cuts = sorted(rng.sample(range(1, 20), count - 1))
    milli = [50 * (end - begin) for begin, end in zip([0, *cuts], [*cuts, 20], strict=True)]
    steady = Worker(milli[0], 1, 0, rng.choice([0.0, 2.0]))
    return [
        steady,
        *(Worker(each, rng.randint(1, 40), rng.randint(0, 40), rng.choice([0.0, 2.0])) for each in milli[1:]),
    ]


def test_whoever_works_all_the_time_gets_its_share_whatever_the_others_do_and_what_is_owed_stays_bounded() -> None:
    for seed in range(40, 60):
        rng, periods = random.Random(seed), 400
        workers = some_workers(rng)
        for period in range(periods):
            step(workers, period, rng)
            owed = sum(each.owed for each in workers if each.is_active(period))
            assert owed <= MOST_PERIODS, (seed, workers)
        assert workers[0].got / periods >= workers[0].milli / 1000 - 0.03, (seed, workers)
