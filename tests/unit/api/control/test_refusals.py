"""How long a session waits whose place is not lent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from api.control.reconcilers import refusals
from api.tables.sessions import Session, State

AT = datetime(2026, 1, 31, 9, 0, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("before", "pause_s"), [(0, 5), (1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (10**9, 300)]
)
def test_each_refusal_in_a_row_doubles_the_pause_up_to_five_minutes(before: int, pause_s: int) -> None:
    assert refusals.pause_s(before) == pause_s


def test_a_session_that_is_refused_waits_again_and_tells_why_and_until_when() -> None:
    assert refusals.refused(Session(refusals=1), "Slurm does not take its job: no account", AT) == {
        "state": State.TERMINATING,
        "final_state": State.PENDING,
        "reason": "Slurm does not take its job: no account; it is tried again at 2026-01-31 09:00:17 UTC",
        "cause": "",
        "refusals": 2,
        "tries_at": datetime(2026, 1, 31, 9, 0, 17, tzinfo=UTC),
    }


def test_a_session_that_runs_begins_anew_and_one_that_was_never_refused_changes_nothing() -> None:
    assert refusals.forgotten(Session(refusals=3)) == {"refusals": 0, "tries_at": None}
    assert refusals.forgotten(Session(refusals=0)) == {}
