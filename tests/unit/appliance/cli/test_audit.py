"""`penstock audit`: who did what, for people and programs, and whether the log is as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.cli import output
from tests.unit.appliance.cli.conftest import FakeApi, Run

LINE: dict[str, Any] = {
    "seq": 7,
    "time": "2026-11-22T10:00:00.000000Z",
    "user": "alice",
    "role": "admin",
    "domain": None,
    "credential": "logins:1",
    "address": "10.0.0.5",
    "action": "project_members",
    "method": "PATCH",
    "object": "projects/vision",
    "project": None,
    "result": "done",
    "status": 200,
    "reason": "",
    "request": "ab",
    "domains": [],
    "changes": [
        {
            "kind": "projects",
            "subject": {"name": "vision"},
            "before": {"quota_milli": 1000},
            "after": {"quota_milli": 3000},
        },
        {"kind": "memberships", "subject": {"project": "vision", "user": "bob"}, "before": None, "after": {}},
    ],
    "more_changes": False,
    "left_out": 0,
    "deleted": None,
    "previous": "0",
    "mac": "1",
}
REFUSED = LINE | {"seq": 6, "user": "", "result": "refused", "status": 401, "reason": "who are you", "left_out": 4}
VERDICT: dict[str, Any] = {"ok": True, "lines": 7, "last": 7, "findings": [], "more_findings": 0, "deleted": []}


def test_lines_say_who_did_what_and_what_changed(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time[:19])
    logged_in.on("GET", "/audit", [LINE, REFUSED])
    code, out, _ = run("audit", "list", "--user", "alice", "--since", "2h", "--result", "done")
    assert code == 0
    head, first, second = out.splitlines()
    assert head.split() == ["TIME", "USER", "FROM", "ACTION", "OBJECT", "RESULT", "WHAT"]
    assert first.endswith("done           quota_milli 1000 → 3000; +memberships vision bob")
    assert second.endswith("refused (401)  who are you (and 4 like this one)")
    (call,) = logged_in.calls
    assert (call.query["user"], call.query["result"]) == ("alice", "done")
    assert "since" in call.query


def test_programs_get_lines_of_json(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/audit", [LINE, REFUSED])
    code, out, _ = run("audit", "list", "--limit", "1", "-o", "json")
    assert (code, json.loads(out)) == (0, LINE)


def test_a_log_that_is_well_is_said_to_be(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/audit/verification", VERDICT)
    code, out, _ = run("audit", "verify")
    assert (code, out) == (0, "7 lines are as they were written; the last one is line 7.\n")


def test_a_log_that_was_changed_is_an_error_that_names_the_lines(logged_in: FakeApi, run: Run) -> None:
    findings = [
        {"day": "", "line": 0, "what": "the log ends with line 7, and worker1 has seen 9"},
        {"day": "20261122", "line": 3, "what": "this line is not as it was written"},
    ]
    deleted = [{"day": "20261101", "first": 1, "last": 4, "mac": "a", "user": "root", "time": LINE["time"]}]
    logged_in.on("GET", "/audit/verification", VERDICT | {"ok": False, "findings": findings, "deleted": deleted})
    code, out, err = run("audit", "verify")
    assert code == 3
    assert "20261122.log:3: this line is not as it was written" in out
    assert "20261101.log was deleted by root: lines 1 to 4" in out
    assert "2 findings" in err


def test_what_the_clock_has_deleted_and_who_does_not_answer_is_told(logged_in: FakeApi, run: Run) -> None:
    gone = {"day": "20241101", "through": "20241103", "first": 1, "last": 4, "mac": "a", "user": "", "time": ""}
    logged_in.on("GET", "/audit/verification", VERDICT | {"deleted": [gone], "unheard": ["worker1", "worker2"]})
    code, out, _ = run("audit", "verify")
    assert code == 0
    assert "20241101.log to 20241103.log were deleted by the clock: lines 1 to 4" in out
    assert "not known from worker1, worker2: no answer" in out


def test_what_touched_a_node_is_asked_for(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/audit", [LINE])
    assert run("audit", "list", "--node", "worker1")[0] == 0
    assert logged_in.calls[0].query["node"] == "worker1"


def test_files_are_listed_and_deleted(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/audit/files", [{"day": "20261122", "size": 2048}])
    logged_in.on("DELETE", "/audit/files/20261122", {"done": True})
    assert run("audit", "files")[1] == "DAY       SIZE\n20261122  2.0K\n"
    assert run("audit", "delete", "20261122")[1] == "20261122.log goes as soon as the log says so.\n"


def test_one_long_object_makes_no_other_row_long(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/audit", [LINE | {"object": "x" * 500}, LINE])
    _, out, _ = run("audit", "list")
    _, long, other = out.splitlines()
    assert "xxx…" in long
    assert len(other) < 250


def test_when_it_began_is_a_date_or_an_age(logged_in: FakeApi, run: Run) -> None:
    code, _, err = run("audit", "list", "--since", "5x")
    assert code != 0
    assert "or 2h for two hours ago" in err
    assert "from now" not in err


def test_what_is_no_day_is_refused_before_anybody_is_asked(logged_in: FakeApi, run: Run) -> None:
    for command in ("delete", "copy"):
        code, _, err = run("audit", command, "../../etc")
        assert code != 0
        assert "'../../etc' is no day" in err
    assert not logged_in.calls
