"""`penstock backup` away from the reservoir node."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from appliance.cli import backup_orders
from appliance.site import deployment
from appliance.site.backup.orders import Orders
from common.backup_protocol import BackupOrderReport
from common.errors import ProcessError
from tests.unit.appliance.cli.conftest import FakeApi, Run

NAME = "penstock-20261123-020000"
ORDER = {
    "id": "00000000-0000-4000-8000-000000000001",
    "action": "now",
    "backup": None,
    "by": "ann",
    "state": "ordered",
    "reason": "",
    "ordered_at": "2026-11-23T02:00:00Z",
    "finished_at": None,
    "seconds": 0.0,
}
DONE = ORDER | {"state": "done", "backup": NAME, "seconds": 2.5}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "is_controller", lambda: False)
    monkeypatch.setattr(backup_orders, "STEP_S", 0)


def backup(**told: Any) -> dict[str, Any]:
    plain = {
        "name": NAME,
        "time": f"{datetime.now(UTC):%FT%TZ}",
        "good": True,
        "problem": "",
        "rows": 7,
        "size": 2_000_000,
    }
    return plain | {"sealed": True, "copied": "", "verified": "", "ahead": False} | told


@pytest.fixture(autouse=True)
def nothing_else(logged_in: FakeApi) -> None:
    logged_in.on("GET", "/repair-runs", [])
    logged_in.on("GET", "/backup-orders", [])
    logged_in.on("GET", "/controller", {"takes_orders": True, "heard_at": ORDER["ordered_at"], "away": False})


def test_an_order_that_waits_says_for_what(logged_in: FakeApi, run: Run) -> None:
    repair = {"id": "r", "repair": "5-I", "by": "bob", "state": "running", "ordered_at": "2026-11-23T01:00:00Z"}
    logged_in.on("GET", "/repair-runs", [repair, repair | {"id": "s", "state": "healthy"}])
    logged_in.on("GET", "/backup-orders", [ORDER])
    logged_in.on("POST", "/backup-orders", ORDER, 201)
    logged_in.on("GET", f"/backup-orders/{ORDER['id']}", ORDER)
    logged_in.then("GET", f"/backup-orders/{ORDER['id']}", DONE)
    code, out, said = run("backup", "now")
    assert (code, f"{NAME} is good" in out) == (0, True)
    waits = "the controller does one thing at a time: repair 5-I runs since 2026-11-23 01:00:00+00:00 (by bob)"
    assert said.splitlines() == [f"ordered, and waits: {waits}"]


def test_the_list_has_what_is_ordered(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/backups", [backup()])
    logged_in.on("GET", "/backup-orders", [ORDER, DONE])
    code, out, _ = run("backup", "list")
    assert code == 0
    assert "backup now waits since 2026-11-23 02:00:00+00:00 (by ann)" in out
    code, out, _ = run("backup", "list", "-o", "json")
    assert json.loads(out)["orders"] == [ORDER]


FAILED = ORDER | {"action": "drill", "state": "failed", "reason": "no room", "ordered_at": "2026-11-23T03:00:00Z"}


def test_the_history_says_what_came_of_orders(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/backup-orders", [FAILED, DONE])
    code, out, _ = run("backup", "history")
    _, failed, done = (line.split() for line in out.splitlines())
    assert (code, failed[1], failed[-4:]) == (0, "drill", ["failed", "-", "no", "room"])
    assert (done[1], done[-2:]) == ("now", ["done", NAME])
    told = json.loads(run("backup", "history", "-o", "json")[1])
    assert [(order["state"], order["reason"]) for order in told] == [("failed", "no room"), ("done", "")]


def test_the_controller_has_the_history_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, logged_in: FakeApi, run: Run
) -> None:
    """Also where the API does not answer."""
    monkeypatch.setattr(deployment, "is_controller", lambda: True)
    monkeypatch.setattr(deployment, "STATE", tmp_path)
    logged_in.trouble = ConnectionRefusedError()
    kept = Orders(tmp_path, tmp_path)
    kept.keep(BackupOrderReport.model_validate(DONE))
    kept.keep(BackupOrderReport.model_validate(FAILED | {"id": str(UUID(int=2))}))
    code, out, _ = run("backup", "history")
    assert (code, [line.split()[1] for line in out.splitlines()]) == (0, ["ACTION", "drill", "now"])


def test_the_list_is_what_the_controller_told(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/backups", [backup(), backup(ahead=True), backup(good=False, problem="no room")])
    code, out, _ = run("backup", "list")
    assert code == 0
    for words in (f"{NAME} ", "good, by a clock that was ahead", "failed: no room", "2.0M"):
        assert words in out


@pytest.mark.parametrize(
    "told", [[], [backup(good=False)], [backup(ahead=True)], [backup(time="2026-01-01T00:00:00Z")]]
)
def test_the_list_fails_where_none_of_the_last_day_is_good(logged_in: FakeApi, run: Run, told: list[Any]) -> None:
    logged_in.on("GET", "/backups", told)
    code, out, _ = run("backup", "list", "-o", "json")
    assert (code, json.loads(out)) == (1, {"backups": told, "orders": []})


@pytest.mark.parametrize(
    ("words", "body", "said"),
    [
        (["now"], {"action": "now", "backup": None}, f"{NAME} is good"),
        (["verify", NAME], {"action": "verify", "backup": NAME}, f"{NAME} is good"),
        (["drill"], {"action": "drill", "backup": None}, f"{NAME} came back as a scratch database in 2.5 s"),
    ],
)
def test_an_order_is_followed_to_its_end(
    logged_in: FakeApi, run: Run, words: list[str], body: dict[str, Any], said: str
) -> None:
    logged_in.on("POST", "/backup-orders", ORDER | {"action": body["action"]}, 201)
    logged_in.on("GET", f"/backup-orders/{ORDER['id']}", ORDER | {"state": "running"})
    logged_in.then("GET", f"/backup-orders/{ORDER['id']}", DONE | {"action": body["action"]})
    code, out, _ = run("backup", *words)
    assert (code, said in out) == (0, True)
    assert logged_in.calls[0].body == body


def test_an_order_that_fails_says_why(logged_in: FakeApi, run: Run) -> None:
    reason = "a deploy is still running. Hint: wait until it has ended"
    logged_in.on("POST", "/backup-orders", ORDER | {"state": "failed", "reason": reason}, 201)
    code, _, error = run("backup", "now")
    assert (code, reason in error, error.count("Hint")) == (ProcessError.exit_code, True, 1)


def test_an_order_that_waits_is_called_back(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/backup-orders", [DONE | {"id": "10000000-0000-4000-8000-000000000001"}, ORDER])
    logged_in.on("POST", f"/backup-orders/{ORDER['id']}/cancel", ORDER | {"state": "cancelled"})
    assert run("backup", "cancel", "00000000")[:2] == (0, "backup now: cancelled\n")
