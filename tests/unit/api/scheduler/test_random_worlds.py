"""What holds in every world, whatever comes, ends and is lost; every fifth lives for eighty cycles or so."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.unit.api.scheduler.random_worlds import RandomWorld

PARTS = 8
"""Tests that run beside each other, each with a part of the worlds."""
MANY, FEW = 1000, 50
FOUND = (200, 410, 675)
"""Worlds beyond the first few in which a promise was broken once."""


@pytest.mark.parametrize("part", range(PARTS))
def test_worlds(part: int) -> None:
    """The first ones, always the same, so that a change is judged by what it changes."""
    worlds = MANY if settings().max_examples > FEW else FEW
    for number in range(part, worlds, PARTS):
        RandomWorld(number).run()


@pytest.mark.parametrize("number", FOUND)
def test_worlds_that_were_found(number: int) -> None:
    RandomWorld(number).run()
