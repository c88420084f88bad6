"""The start of a session: one that is past is refused, unless by no more than clocks may differ."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from common.errors import InputError
from common.starts import CLOCKS_DIFFER, check_start

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("starts_at", [None, NOW, NOW + timedelta(days=900), NOW - CLOCKS_DIFFER])
def test_a_later_start_or_none_will_do(starts_at: datetime | None) -> None:
    check_start(starts_at, NOW, "starts_at")


def test_a_start_that_is_past_is_refused() -> None:
    with pytest.raises(InputError, match="'2027-01-31T11:54:59\\+00:00' is past") as raised:
        check_start(NOW - CLOCKS_DIFFER - timedelta(seconds=1), NOW, "starts_at")
    [problem] = raised.value.problems
    assert (problem.where, problem.hint) == ("starts_at", "write a later moment, or leave it out")
