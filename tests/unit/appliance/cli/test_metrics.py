"""`penstock metrics`: what a session used of its GPUs, as lines of time."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from appliance.cli import output, parse
from appliance.client.views import Metrics
from common.errors import InputError
from tests.unit.appliance.cli.conftest import FakeApi, Run

SHOWN: Metrics = {
    "session_id": "5c7b",
    "since": "2026-01-02T03:00:00Z",
    "until": "2026-01-02T04:00:00Z",
    "step_s": 180,
    "series": [
        {
            "rank": 0,
            "uuid": "GPU-1",
            "points": [
                {"at": "2026-01-02T03:00:00Z", "memory_mib": 900, "busy_permille": 305, "processes": 2},
                {"at": "2026-01-02T03:03:00Z", "memory_mib": 16255, "busy_permille": None, "processes": 0},
            ],
        }
    ],
}


def test_lines_of_time(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time)
    logged_in.on("GET", "/sessions/first/metrics", SHOWN)
    code, out, _ = run("metrics", "first")
    assert code == 0
    assert out == (
        "TIME                  CONTAINER  GPU    MEMORY     BUSY    PROCESSES\n"
        "2026-01-02T03:00:00Z  0          GPU-1  900 MiB    30.5 %  2\n"
        "2026-01-02T03:03:00Z  0          GPU-1  16255 MiB  -       0\n"
        "Each line stands for 3m: most memory and processes, mean of busy time.\n"
    )
    assert logged_in.last.query == {"project": "team-a", "points": "20"}
    assert json.loads(run("metrics", "first", "-o", "json")[1]) == SHOWN


def test_a_time_is_chosen(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/first/metrics", SHOWN)
    since, until = "2026-01-02T03:00:00+00:00", "2026-01-02T04:00:00+00:00"
    assert run("metrics", "first", "--since", since, "--until", until, "--points", "5")[0] == 0
    query = logged_in.last.query
    assert [datetime.fromisoformat(query[name]) for name in ("since", "until")] == [
        datetime.fromisoformat(since),
        datetime.fromisoformat(until),
    ]
    assert query["points"] == "5"


def test_a_time_without_metrics_is_said(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/first/metrics", {**SHOWN, "series": []})
    assert run("metrics", "first")[1] == "No metrics are known of that time.\n"


def test_moments_of_the_past() -> None:
    now = datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert parse.past("2h", "--since", now=now) == "2026-01-02T10:00:00+00:00"
    assert parse.past("1d12h", "--since", now=now) == "2026-01-01T00:00:00+00:00"
    assert parse.past("2026-01-01T00:00:00+00:00", "--since").startswith("202")
    with pytest.raises(InputError):
        parse.past("yesterday", "--since")
