"""Sets of arguments: what is put together, taken away and taken apart is exactly what it should be."""

from __future__ import annotations

import random

import pytest

from appliance.agent.sandbox import cubes
from appliance.agent.sandbox.cubes import ALL, FULL, Cube

EDGES = (0, 1, 2, 15, 16, 17, 255, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) + 5, FULL)


def has(cube: Cube, arguments: tuple[int, ...]) -> bool:
    return all(argument & mask == value for argument, (mask, value) in zip(arguments, cube, strict=True))


def within(found: list[Cube], *first: int) -> int:
    """Return how many cubes have a call with these first arguments."""
    arguments = (*first, *(0,) * (cubes.ARGUMENTS - len(first)))
    return sum(has(cube, arguments) for cube in found)


@pytest.mark.parametrize("value", EDGES)
def test_every_comparison_is_what_it_says_and_no_two_cubes_of_it_meet(value: int) -> None:
    for other in EDGES:
        truth = {
            "SCMP_CMP_EQ": other == value,
            "SCMP_CMP_NE": other != value,
            "SCMP_CMP_LT": other < value,
            "SCMP_CMP_LE": other <= value,
            "SCMP_CMP_GT": other > value,
            "SCMP_CMP_GE": other >= value,
        }
        for operator, is_true in truth.items():
            assert within(cubes.comparing(1, operator, value), 99, other) == is_true, (operator, value, other)


def test_a_masked_comparison_looks_at_the_bits_of_its_mask() -> None:
    found = cubes.comparing(0, "SCMP_CMP_MASKED_EQ", 0xF0, 0x10)
    assert [within(found, value) for value in (0x10, 0x1F, 0x20, 0x110)] == [1, 1, 0, 1]


def test_what_is_no_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="SCMP_CMP_LIKE is no comparison"):
        cubes.comparing(0, "SCMP_CMP_LIKE", 1)


def test_taking_away_leaves_each_other_call_in_one_cube_and_none_that_was_taken() -> None:
    chance = random.Random(7)
    for _ in range(50):
        taken = [
            cubes.having(0, chance.choice((0xFF, FULL, 0x3)), chance.randrange(8))
            for _ in range(chance.randrange(1, 4))
        ]
        taken += [cube for cube in [cubes.both(taken[0], cubes.having(1, 0xF, chance.randrange(4)))] if cube]
        left = cubes.left_of([ALL], taken)
        apart = cubes.disjoint(taken)
        for first in range(12):
            for second in range(6):
                is_taken = any(has(cube, (first, second, 0, 0, 0, 0)) for cube in taken)
                assert within(left, first, second) == (not is_taken)
                assert within(apart, first, second) == is_taken


def test_cubes_that_contradict_each_other_have_nothing_in_common() -> None:
    assert cubes.both(cubes.having(0, 1, 1), cubes.having(0, 1, 0)) is None
    assert cubes.both(cubes.having(0, 1, 1), cubes.having(1, 1, 0)) == ((1, 1), (1, 0), (0, 0), (0, 0), (0, 0), (0, 0))


def test_near_values_share_their_cubes_and_too_many_cubes_are_refused() -> None:
    near = [cubes.having(0, (1 << 32) - 1, value) for value in range(16, 24)]
    assert len(cubes.left_of([ALL], near)) < 40
    with pytest.raises(ValueError, match="more than 512"):
        cubes.left_of([ALL], [cubes.having(0, FULL, value << 40) for value in range(0, 900, 7)])
