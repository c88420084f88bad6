"""What holds in every world also where projects share inside of domains, and where it counts what they had lately."""

from __future__ import annotations

import pytest

from tests.unit.api.scheduler.random_worlds import numbers
from tests.unit.api.scheduler.sharing_worlds import SharingWorld

PARTS = 20
MANY, FEW = 1000, 25
"""Each of them is a `RandomWorld` with more: what holds in worlds is looked at in so many at least."""


@pytest.mark.parametrize("part", range(PARTS))
def test_worlds(part: int) -> None:
    for number in numbers(part, PARTS, many=MANY, few=FEW):
        SharingWorld(number).run()
