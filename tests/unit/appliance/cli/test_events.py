"""`penstock events`: what became of a session, the oldest first."""

from __future__ import annotations

from appliance.client.views import SessionEvent
from tests.unit.appliance.cli.conftest import FakeApi, Run

NEWEST_FIRST: list[SessionEvent] = [
    {"at": "2026-01-02T03:04:00Z", "state": "FAILED", "reason": "it ended", "cause": "", "attempt": 1, "exit_code": 3},
    {"at": "2026-01-02T03:03:00Z", "state": "PREPARING", "reason": "", "cause": "", "attempt": 1, "exit_code": None},
]


def test_events_are_shown_from_the_first_to_the_last(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/demo/events", NEWEST_FIRST)
    code, out, err = run("events", "demo")
    assert (code, err) == (0, "")
    head, first, last = out.splitlines()
    assert head.split() == ["TIME", "STATUS", "ATTEMPT", "REASON"]
    assert "ContainerCreating" in first
    assert first.split()[-1] == "2", "as `penstock get` numbers it"
    assert last.endswith("it ended (exit code 3)")
