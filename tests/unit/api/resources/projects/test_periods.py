"""Periods of projects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from api.resources.projects import service
from api.tables.projects import Project


def test_the_end_of_a_period_does_not_belong_to_it() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    project = Project(quota_milli=1000, starts_at=start, ends_at=start + timedelta(days=1))
    second = timedelta(seconds=1)
    moments = [start - second, start, start + timedelta(days=1) - second, start + timedelta(days=1)]
    assert [service.is_active(project, moment) for moment in moments] == [False, True, True, False]
