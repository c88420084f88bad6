"""`penstock repair` away from the reservoir node."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.cli import repair
from appliance.site import deployment
from tests.unit.appliance.cli.conftest import FakeApi, Run

RUN: dict[str, Any] = {
    "id": "00000000-0000-4000-8000-000000000001",
    "repair": "5-D",
    "by": "ann",
    "limit": None,
    "dry_run": True,
    "agreed": False,
    "state": "ordered",
    "reason": "",
    "ordered_at": "2026-11-23T02:00:00Z",
    "finished_at": None,
    "tried": [],
    "sick": [],
}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "is_controller", lambda: False)
    monkeypatch.setattr(repair, "STEP_S", 0)


def test_the_history_says_which_nodes_had_it_though_it_was_a_dry_run(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/repair-runs", [RUN | {"state": "rehearsed", "sick": ["w1", "w2"]}])
    code, out, _ = run("repair", "history")
    assert (code, "w1 w2" in out) == (0, True)


def test_an_order_that_waits_says_for_what(logged_in: FakeApi, run: Run) -> None:
    backup = {"id": "b", "action": "drill", "by": "ann", "state": "running", "ordered_at": "2026-11-23T01:00:00Z"}
    placed = RUN | {"steps": []}
    logged_in.on("POST", "/repairs/5-D/runs", placed, 201)
    logged_in.on("GET", "/repair-runs", [placed])
    logged_in.on("GET", "/backup-orders", [backup, backup | {"id": "c", "state": "done"}])
    logged_in.on("GET", "/controller", {"takes_orders": True, "heard_at": RUN["ordered_at"], "away": False})
    logged_in.on("GET", f"/repair-runs/{RUN['id']}", placed)
    logged_in.then("GET", f"/repair-runs/{RUN['id']}", placed | {"state": "healthy", "finished_at": RUN["ordered_at"]})
    code, out, said = run("repair", "run", "5-D")
    assert (code, "5-D: healthy" in out) == (0, True)
    waits = "the controller does one thing at a time: backup drill runs since 2026-11-23 01:00:00+00:00 (by ann)"
    assert said.splitlines() == [f"ordered, and waits: {waits}"]


def test_an_order_that_waits_says_that_the_controller_is_away(logged_in: FakeApi, run: Run) -> None:
    placed = RUN | {"steps": []}
    logged_in.on("POST", "/repairs/5-D/runs", placed, 201)
    logged_in.on("GET", "/repair-runs", [placed])
    logged_in.on("GET", "/backup-orders", [])
    logged_in.on("GET", "/controller", {"takes_orders": True, "heard_at": "2026-11-23T01:00:00Z", "away": True})
    logged_in.on("GET", f"/repair-runs/{RUN['id']}", placed)
    over = {"state": "cancelled", "reason": "cancelled by bob", "finished_at": RUN["ordered_at"]}
    logged_in.then("GET", f"/repair-runs/{RUN['id']}", placed | over)
    code, out, said = run("repair", "run", "5-D")
    assert code != 0
    assert "5-D: cancelled: cancelled by bob" in out
    assert "nothing was heard of it since 2026-11-23 01:00:00+00:00: look at `systemctl status" in said


def test_a_run_that_waits_is_called_back_by_the_beginning_of_its_id(logged_in: FakeApi, run: Run) -> None:
    other = RUN | {"id": "10000000-0000-4000-8000-000000000001"}
    logged_in.on("GET", "/repair-runs", [RUN, other, RUN | {"id": "00000000-0000-4000-8000-000000000002"}])
    logged_in.on("POST", f"/repair-runs/{other['id']}/cancel", other | {"steps": [], "state": "cancelled"})
    assert run("repair", "cancel", "1000")[:2] == (0, "5-D: cancelled\n")
    code, _, said = run("repair", "cancel", "0000")
    assert (code, "beginning of several" in said) == (2, True)
