"""What holds in every world for eighty cycles and until it has drained, whatever comes, ends and is lost."""

from __future__ import annotations

import pytest

from tests.unit.api.scheduler.random_worlds import RandomWorld, numbers

PARTS = 20
"""Tests that run beside each other, each with a part of the worlds."""
MANY, FEW = 300, 25
"""Worlds in the full profile and in the fast one. All that holds in these is looked at in each `SharingWorld`, too."""


@pytest.mark.parametrize("part", range(PARTS))
def test_worlds(part: int) -> None:
    """The first ones, always the same, so that a change is judged by what it changes."""
    for number in numbers(part, PARTS, many=MANY, few=FEW):
        RandomWorld(number).run()


@pytest.mark.parametrize("number", [1257, 1353])
def test_worlds_in_which_a_priority_and_both_guarantees_stopped_each_other_in_turn(number: int) -> None:
    RandomWorld(number).run()
