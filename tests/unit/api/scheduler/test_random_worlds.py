"""What holds in every world, whatever comes, ends and is lost: many of them, over a hundred cycles each."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.api.scheduler.random_worlds import RandomWorld

PARTS = 4
"""Tests that run beside each other, each with a part of the worlds."""


@pytest.mark.parametrize("part", range(PARTS))
@settings(max_examples=max(5, settings().max_examples // 5))
@given(seed=st.integers(0, 250_000))
def test_worlds(part: int, seed: int) -> None:
    world = RandomWorld(PARTS * seed + part)
    world.live()
    world.check_rest(world.rest())
    world.drain()
