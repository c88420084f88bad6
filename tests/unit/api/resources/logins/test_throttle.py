"""How soon one may try again to sign in."""

from __future__ import annotations

import pytest

from api.resources.logins import throttle


@pytest.mark.parametrize(
    ("failures", "wait"), [(0, 0), (9, 0), (10, 1), (11, 2), (12, 4), (18, 256), (19, 300), (1_000_000, 300)]
)
def test_the_delay_doubles_up_to_a_limit(failures: int, wait: int) -> None:
    assert throttle.delay_s(failures, 10) == wait
