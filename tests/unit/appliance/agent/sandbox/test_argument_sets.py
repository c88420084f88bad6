"""Sets of arguments: what is put together, taken away and taken apart is exactly what it should be."""

from __future__ import annotations

import operator
import random

import pytest

from appliance.agent.sandbox import argument_sets
from appliance.agent.sandbox.argument_sets import ALL, FULL, HALF, ArgumentSet, both, having

EDGES = (0, 1, 2, 15, 16, 17, 255, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) + 5, FULL)
COMPARISONS = {name: getattr(operator, name.lower()) for name in ("EQ", "NE", "LT", "LE", "GT", "GE")}


def has(one: ArgumentSet, arguments: tuple[int, ...]) -> bool:
    return all(argument & mask == value for argument, (mask, value) in zip(arguments, one, strict=True))


def within(found: list[ArgumentSet], *first: int) -> int:
    """Return how many sets have a call with these first arguments."""
    arguments = (*first, *(0,) * (argument_sets.ARGUMENTS - len(first)))
    return sum(has(one, arguments) for one in found)


@pytest.mark.parametrize("value", EDGES)
def test_every_comparison_holds_for_the_lower_half_too_and_no_two_sets_of_it_meet(value: int) -> None:
    for name, holds in COMPARISONS.items():
        found = argument_sets.comparing(1, f"SCMP_CMP_{name}", value)
        for other in EDGES:
            expected = holds(other, value) and holds(other & HALF, value & HALF)
            assert within(found, 99, other) == expected, (name, value, other)


@pytest.mark.parametrize("value", EDGES)
def test_to_a_program_of_32_bits_no_set_is_more_than_its_comparison(value: int) -> None:
    """It is asked for the lower halves of masks and values alone."""
    for name, holds in COMPARISONS.items():
        found = argument_sets.comparing(0, f"SCMP_CMP_{name}", value)
        for other in EDGES:
            passes = any(other & mask & HALF == known & HALF for ((mask, known), *_) in found)
            assert not passes or holds(other & HALF, value & HALF), (name, value, other)


def test_a_masked_comparison_looks_at_the_bits_of_its_mask() -> None:
    found = argument_sets.comparing(0, "SCMP_CMP_MASKED_EQ", 0xF0, 0x10)
    assert [within(found, value) for value in (0x10, 0x1F, 0x20, 0x110)] == [1, 1, 0, 1]


def test_what_is_no_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="SCMP_CMP_LIKE is no comparison"):
        argument_sets.comparing(0, "SCMP_CMP_LIKE", 1)


def test_taking_away_leaves_each_other_call_in_one_set_and_none_that_was_taken() -> None:
    chance = random.Random(7)
    for _ in range(50):
        taken = [
            having(0, chance.choice((0xFF, FULL, 0x3)), chance.randrange(8)) for _ in range(chance.randrange(1, 4))
        ]
        taken += [one for one in [both(taken[0], having(1, 0xF, chance.randrange(4)))] if one]
        left = argument_sets.left_of([ALL], taken)
        apart = argument_sets.disjoint(taken)
        for first in range(12):
            for second in range(6):
                is_taken = any(has(one, (first, second, 0, 0, 0, 0)) for one in taken)
                assert within(left, first, second) == (not is_taken)
                assert within(apart, first, second) == is_taken


def test_sets_that_contradict_each_other_have_nothing_in_common() -> None:
    assert both(having(0, 1, 1), having(0, 1, 0)) is None
    assert both(having(0, 1, 1), having(1, 1, 0)) == (
        (1, 1),
        (1, 0),
        (0, 0),
        (0, 0),
        (0, 0),
        (0, 0),
    )


def test_near_values_share_their_sets_and_too_many_sets_are_refused() -> None:
    near = [having(0, (1 << 32) - 1, value) for value in range(16, 24)]
    assert len(argument_sets.left_of([ALL], near)) < 40
    with pytest.raises(ValueError, match="more than 512"):
        argument_sets.left_of([ALL], [having(0, FULL, value << 40) for value in range(0, 900, 7)])
