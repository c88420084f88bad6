"""Retention of the audit log: the oldest files go, never the last one, and one line tells of all that go together."""

from __future__ import annotations

from datetime import date

import pytest

from api.resources.audit import retention
from api.resources.audit.log_files import Day
from common.settings.audit import AuditSettings

MIB = 1 << 20
DAYS = [Day(f"202611{day:02}", 2 * MIB) for day in range(1, 11)]
TODAY = date(2026, 11, 12)


@pytest.mark.parametrize(
    ("keep_days", "keep_mib", "gone"),
    [(730, 0, 0), (10, 0, 1), (5, 0, 6), (1, 0, 9), (730, 20, 0), (730, 19, 1), (730, 1, 9), (5, 11, 6)],
)
def test_what_is_too_old_or_too_large_goes(keep_days: int, keep_mib: int, gone: int) -> None:
    settings = AuditSettings(audit_keep_days=keep_days, audit_keep_mib=keep_mib)
    assert retention.expired(DAYS, TODAY, settings) == [one.day for one in DAYS[: min(gone, retention.AT_ONCE)]]


def test_a_clock_that_is_far_ahead_deletes_few_before_somebody_sees_it() -> None:
    gone = retention.expired(DAYS, date(2036, 1, 1), AuditSettings(audit_keep_days=365))
    assert gone == ["20261101", "20261102", "20261103"]


def test_a_file_that_is_dated_ahead_goes_when_the_one_after_it_does() -> None:
    days = [Day(name, MIB) for name in ("20261101", "20271123", "20271123-20261102", "20271123-20261111", "20271123")]
    gone = retention.expired(days, TODAY, AuditSettings(audit_keep_days=5))
    assert gone == ["20261101", "20271123", "20271123-20261102"]


def test_one_line_tells_of_all_that_go_and_of_what_they_told() -> None:
    by_root = {"day": "20261030", "first": 1, "last": 2, "mac": "a", "user": "root", "time": "then"}
    extents = [
        {"day": "20261101", "first": 3, "last": 5, "mac": "b", "earlier": [by_root]},
        {"day": "20261102", "first": 6, "last": 9, "mac": "c"},
    ]
    line = retention.deletion(extents, "now")
    assert line["deleted"] == {
        "day": "20261101",
        "through": "20261102",
        "first": 3,
        "last": 9,
        "mac": "c",
        "earlier": [by_root],
    }
