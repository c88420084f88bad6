"""What holds in every world also where projects share inside of domains, and where it counts what they had lately."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.unit.api.scheduler.sharing_worlds import SharingWorld
from tests.unit.api.scheduler.test_random_worlds import FEW_EXAMPLES

PARTS = 20
MANY, FEW = 1000, 25
"""Each of them is a `RandomWorld` with more: what holds in worlds is looked at in so many at least."""


@pytest.mark.parametrize("part", range(PARTS))
def test_worlds(part: int) -> None:
    worlds = MANY if settings().max_examples > FEW_EXAMPLES else FEW
    for number in range(part, worlds, PARTS):
        SharingWorld(number).run()
