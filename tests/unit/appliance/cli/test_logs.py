"""`penstock logs --site`: what services of all nodes have logged."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from appliance.cli import output
from appliance.client.sessions import Sessions
from tests.unit.appliance.cli.conftest import FakeApi, Run

LINE: dict[str, Any] = {
    "time": "2026-11-22T10:00:00.000000Z",
    "node": "worker1",
    "host": "",
    "unit": "penstock-agent.service",
    "level": "warning",
    "message": "level=warning event=told",
    "request": "ab",
    "session": "",
    "user": "",
}


def test_what_happened_last_stands_last(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time[:19])
    logged_in.on("GET", "/logs", [LINE, LINE | {"time": "2026-11-22T09:00:00.000000Z", "node": "master1"}])
    asked = ["--request", "ab", "--session", "s1", "--node", "worker1", "--unit", "penstock-agent", "--since", "2h"]
    code, out, _ = run("logs", "--site", *asked, "-n", "5")
    assert code == 0
    head, first, second = out.splitlines()
    assert head.split() == ["TIME", "NODE", "UNIT", "LEVEL", "WHAT"]
    assert first.split()[:3] == ["2026-11-22T09:00:00", "master1", "penstock-agent"]
    assert second.endswith("level=warning event=told")
    (call,) = logged_in.calls
    assert {key: call.query[key] for key in ("request", "session", "node", "unit")} == {
        "request": "ab",
        "session": "s1",
        "node": "worker1",
        "unit": "penstock-agent",
    }
    assert "since" in call.query


def test_a_node_that_writes_as_another_is_named(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/logs", [LINE | {"host": "master1"}])
    assert "worker1 (as master1)" in run("logs", "--site")[1]


def test_programs_get_a_line_each(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/logs", [LINE, LINE])
    code, out, _ = run("logs", "--site", "-o", "json", "-n", "1")
    assert (code, json.loads(out)) == (0, LINE)


@pytest.mark.parametrize(
    ("words", "terminal", "shown"),
    [
        ([], True, "1\t\\x1b[2J\\x07손\\u2028\n2\n"),
        (["--raw"], True, "1\t\x1b[2J\x07손\u2028\r\n2\n"),
        ([], False, "1\t\x1b[2J\x07손\u2028\r\n2\n"),
    ],
)
def test_a_terminal_obeys_no_session(
    logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], terminal: bool, shown: str
) -> None:
    said = "1\t\x1b[2J\x07손\u2028\r\n2\n".encode()
    # in the middle of a letter
    monkeypatch.setattr(Sessions, "log", lambda *_, **__: iter((said[:8], said[8:])))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert run("logs", "web", "-p", "team-a", *words)[:2] == (0, shown)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--request", "ab"], "--request"),
        ([], "NAME"),
        (["--site", "web"], "NAME"),
        (["--site", "-f"], "-f"),
        (["--site", "--rank", "1"], "--rank"),
    ],
)
def test_what_does_not_go_together_is_refused(logged_in: FakeApi, run: Run, words: list[str], where: str) -> None:
    code, _, err = run("logs", *words)
    assert code == 2
    assert err.startswith(f"error: {where}: ")
    assert not logged_in.calls


def test_a_container_is_named_by_its_rank(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/web/logs", "rank 1")
    assert run("logs", "web", "-p", "team-a", "--rank", "1")[0] == 0
    assert logged_in.last.query == {"project": "team-a", "rank": "1", "follow": "false"}
