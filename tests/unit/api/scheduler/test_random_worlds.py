"""What holds in every world for eighty cycles and until it has drained, whatever comes, ends and is lost."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.unit.api.scheduler.random_worlds import RandomWorld

PARTS = 20
"""Tests that run beside each other, each with a part of the worlds."""
MANY, FEW = 300, 25
"""Worlds in the full profile and in the fast one. All that holds in these is looked at in each `SharingWorld`, too."""
FEW_EXAMPLES = 50


@pytest.mark.parametrize("part", range(PARTS))
def test_worlds(part: int) -> None:
    """The first ones, always the same, so that a change is judged by what it changes."""
    worlds = MANY if settings().max_examples > FEW_EXAMPLES else FEW
    for number in range(part, worlds, PARTS):
        RandomWorld(number).run()


@pytest.mark.parametrize("number", [1257, 1353])
def test_worlds_in_which_a_priority_and_both_guarantees_stopped_each_other_in_turn(number: int) -> None:
    RandomWorld(number).run()
