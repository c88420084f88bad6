"""What holds in every world also where projects share inside of domains, and where it counts what they had lately."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.unit.api.scheduler.sharing_worlds import SharingWorld

PARTS = 8
MANY, FEW = 1000, 50
FOUND = (800,)
"""Worlds beyond the first few in which a promise was broken once."""


@pytest.mark.parametrize("part", range(PARTS))
def test_worlds(part: int) -> None:
    worlds = MANY if settings().max_examples > FEW else FEW
    for number in range(part, worlds, PARTS):
        SharingWorld(number).run()


@pytest.mark.parametrize("number", FOUND)
def test_worlds_that_were_found(number: int) -> None:
    SharingWorld(number).run()
