"""What the library costs a training, by rounds of which each has one beside it."""

from __future__ import annotations

from tests.gpu.framework_checks import compared
from tests.gpu.outcomes import State


def test_a_card_that_gets_faster_meanwhile_makes_nobody_slower_or_faster() -> None:
    # 1 % slower with the library, while the clocks rise by half
    rates = [400 + 10 * step for step in range(24)]
    without = [rates[2 * number + number % 2] for number in range(12)]
    with_it = [0.99 * rates[2 * number + 1 - number % 2] for number in range(12)]
    figures = {figure.name: figure for figure in compared(without, with_it)}
    slower, noise = figures["slower with it"], figures["noise"]
    assert isinstance(slower.got, float)
    assert isinstance(noise.got, float)
    assert abs(slower.got - 1) < 0.2
    assert 1 < noise.got < 4


def test_one_round_that_something_else_disturbed_does_not_count() -> None:
    figures = {figure.name: figure for figure in compared([400.0] * 12, [392.0] * 11 + [100.0])}
    assert (figures["slower with it"].got, figures["slower with it"].state) == (2, State.WITHIN)
    assert figures["noise"].got == 0


def test_what_is_too_slow_is_outside() -> None:
    figures = {figure.name: figure for figure in compared([400.0] * 12, [380.0] * 12)}
    assert (figures["slower with it"].got, figures["slower with it"].state) == (5, State.OUTSIDE)
