"""`penstock sandbox` and `penstock denied-calls`: rules in one line each, and what came of them."""

from __future__ import annotations

import json

import pytest

from appliance.cli import output
from appliance.client.views import DeniedCalls, Sandbox
from tests.unit.appliance.cli.conftest import FakeApi, Run
from tests.unit.appliance.cli.samples import session

STRICT: Sandbox = {
    "id": "5c7b",
    "name": "strict",
    "description": "no folders",
    "rules": [
        {"calls": ["mkdir", "mkdirat"], "when": [], "errno": "EROFS", "ends": False},
        {"calls": ["socket"], "when": [{"argument": 0, "values": [16, 17], "bits": 0}], "errno": "EPERM", "ends": True},
    ],
    "site_wide": True,
    "projects": ["team-a"],
    "images": ["python:3.11"],
    "created_at": "2026-01-02T03:00:00Z",
}
SHOWN: DeniedCalls = {
    "session_id": "5c7b",
    "sandbox": "strict",
    "denied": 12,
    "series": [
        {
            "rank": 0,
            "call": "mkdir",
            "process": "python3",
            "pid": 17,
            "effect": "EROFS",
            "first_at": "2026-01-02T03:00:00Z",
            "last_at": "2026-01-02T03:03:00Z",
            "count": 12,
        }
    ],
}


def test_a_sandbox_is_created_and_shown(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/sandboxes", STRICT, status=201)
    words = ["--deny", "mkdir,mkdirat:EROFS", "--deny", "socket(0=16|17):kill", "--project", "team-a", "--site-wide"]
    code, out, _ = run("sandbox", "create", "strict", *words)
    assert code == 0
    assert logged_in.last.body == {
        "name": "strict",
        "rules": [
            {"calls": ["mkdir", "mkdirat"], "ends": False, "errno": "EROFS"},
            {"calls": ["socket"], "ends": True, "when": [{"argument": 0, "values": [16, 17]}]},
        ],
        "projects": ["team-a"],
        "site_wide": True,
    }
    assert "mkdir,mkdirat:EROFS" in out
    assert "socket(0=16|17):kill" in out


def test_sandboxes_are_listed_with_whom_they_are_for(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sandboxes", [STRICT])
    assert run("sandbox", "list")[1] == (
        "NAME    RULES  FOR                            DESCRIPTION\n"
        "strict  2      the site, team-a, python:3.11  no folders\n"
    )


def test_a_list_is_taken_away_by_none(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("PATCH", "/sandboxes/strict", STRICT)
    assert run("sandbox", "update", "strict", "--project", "none", "--deny", "none", "--not-site-wide")[0] == 0
    assert logged_in.last.body == {"rules": [], "projects": [], "site_wide": False}


def test_a_sandbox_is_deleted(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("DELETE", "/sandboxes/strict", {"done": True})
    assert run("sandbox", "delete", "strict")[1] == "Deleted sandbox strict.\n"


def test_denied_calls_are_lines_of_series(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time)
    logged_in.on("GET", "/sessions/first/denied-calls", SHOWN)
    assert run("denied-calls", "first")[1] == (
        "LAST                  CONTAINER  PROCESS  PID  CALL   EFFECT  COUNT  FIRST\n"
        "2026-01-02T03:03:00Z  0          python3  17   mkdir  EROFS   12     2026-01-02T03:00:00Z\n"
        "The sandbox strict denied 12 system calls.\n"
    )
    assert json.loads(run("denied-calls", "first", "-o", "json")[1]) == SHOWN


def test_a_session_outside_of_sandboxes_says_so(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/first/denied-calls", {**SHOWN, "sandbox": "", "denied": 0, "series": []})
    assert run("denied-calls", "first")[1] == "The session is in no sandbox.\n"


def test_get_says_in_which_sandbox_a_session_is_and_what_that_denied(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/first", session(sandbox="strict", denied=3))
    assert (
        "strict, which denied 3 system calls (managers of the project see which: penstock denied-calls first)"
        in run("get", "first")[1]
    )
