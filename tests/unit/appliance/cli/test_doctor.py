"""The commands `doctor` and `health`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.cli.doctor import MOST
from tests.unit.appliance.cli.conftest import FakeApi, Run


def check(state: str = "fail", **more: Any) -> dict[str, Any]:
    said = {
        "id": "00000000-0000-4000-8000-000000000001",
        "node": "worker1",
        "check": "disk",
        "thing": "/",
        "name": "disk has room",
        "state": state,
        "evidence": "97 % is full",
        "hint": "" if state == "ok" else "look at `du`",
        "repair": "",
        "since": "2026-01-01T00:00:00Z",
        "closes": state == "fail",
        "acknowledged_until": None,
        "acknowledged_by": "",
        "comment": "",
    }
    return said | more


def test_doctor_shows_what_is_not_well_and_what_to_do(logged_in: FakeApi, run: Run) -> None:
    found = [check(), check(thing="/var"), check("ok", check="memory"), check(check="engine", hint="", repair="5-D")]
    logged_in.on("GET", "/health/checks", found)
    code, out, _ = run("doctor")
    assert code == 1
    assert "97 % is full, takes nothing new" in out
    assert "memory" not in out
    assert out.count("disk: look at `du`") == 1
    assert "engine: `penstock repair run 5-D`" in out
    assert "1 of 4 checks are well." in out


def test_advice_of_an_agent_is_shown_and_not_obeyed(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/health/checks", [check(hint="\x1b[2Jx", repair="\x1b]0;y\x07")])
    out = run("doctor")[1]
    assert r"disk: \x1b[2Jx" in out
    assert "\x1b" not in out


def test_a_node_with_many_bad_checks_hides_no_other(logged_in: FakeApi, run: Run) -> None:
    """Of one that makes checks up the worst are shown, the others counted; of it alone, all are."""
    made_up = [check("warn", check=f"x{number:03}", hint=f"do {number}") for number in range(200)]
    of_others = [check(node="", check="database"), check("warn", node="worker2", check="memory")]
    logged_in.on("GET", "/health/checks", [*of_others, *made_up, check(check="xid")])
    code, out, _ = run("doctor")
    assert (code, out.count("worker1  ")) == (1, MOST)
    of_worker1 = [line for line in out.splitlines() if "  worker1  " in line]
    assert [line.split()[0] for line in of_worker1] == ["fail", *["warn"] * (MOST - 1)]
    assert out.count(": do ") == MOST - 1
    assert "worker1: 181 more are not well: `penstock doctor --node worker1` shows them." in out
    assert "database" in out
    assert "memory" in out
    assert "0 of 203 checks are well." in out
    logged_in.on("GET", "/health/checks", [*made_up, check(check="xid")])
    out = run("doctor", "--node", "worker1")[1]
    assert (out.count(": do "), "more are" in out) == (200, False)
    assert len(json.loads(run("doctor", "-o", "json")[1])) == 201


def test_all_that_is_asked_for_is_shown(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/health/checks", [check("ok", check=f"x{number}") for number in range(2 * MOST)])
    out = run("doctor", "--all")[1]
    assert (out.count("worker1  "), "more are" in out) == (2 * MOST, False)


def test_warnings_are_shown_and_are_no_failure(logged_in: FakeApi, run: Run) -> None:
    found = [check("warn", acknowledged_until="2026-01-02T00:00:00Z"), check("ok", check="memory", evidence="")]
    logged_in.on("GET", "/health/checks", found)
    code, out, _ = run("doctor", "--all", "--node", "worker1")
    assert code == 0
    assert "warn (acknowledged)" in out
    assert "memory" in out
    assert logged_in.last.query == {"node": "worker1"}


def test_programs_get_the_checks_as_the_api_says_them(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/health/checks", [check()])
    code, out, _ = run("doctor", "-o", "json")
    assert (code, json.loads(out)) == (1, [check()])


@pytest.mark.parametrize(("trouble", "repair"), [(ConnectionRefusedError(), "5-A"), (TimeoutError(), "5-A")])
def test_where_the_api_does_not_answer_it_says_what_is_seen_from_here(
    logged_in: FakeApi, run: Run, trouble: OSError, repair: str
) -> None:
    logged_in.trouble = trouble
    code, out, _ = run("doctor")
    assert code == 1
    assert f"`penstock repair run {repair}`" in out
    assert "https://master1:56789" in out


def test_an_edge_that_has_nobody_behind_it_asks_for_another_repair(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/health/checks", b"<html>502</html>", 502)
    code, out, _ = run("doctor", "-o", "json")
    [seen] = json.loads(out)
    assert (code, seen["state"], seen["repair"]) == (1, "fail", "5-B")


def test_history_is_a_table(logged_in: FakeApi, run: Run) -> None:
    change = {"number": 1, "at": "2026-01-01T00:00:00Z", "node": "", "check": "edge", "thing": "", "before": None}
    logged_in.on("GET", "/health/changes", [change | {"after": "fail", "evidence": "it does not answer"}])
    code, out, _ = run("health", "history", "--check", "edge")
    assert code == 0
    assert "it does not answer" in out
    assert logged_in.last.query["check"] == "edge"


def test_a_check_is_named_by_node_check_and_thing(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/health/checks", [check(), check(id="2", thing="/var")])
    code, _, err = run("health", "clear", "disk", "--node", "worker1")
    assert (code, "name one of /, /var" in err) == (2, True)
    code, _, err = run("health", "clear", "memory", "--node", "worker1")
    assert (code, "worker1 has no check memory" in err) == (6, True)
    logged_in.on("POST", "/health/checks/2/clear", check("ok", evidence="cleared by admin"))
    code, out, _ = run("health", "clear", "disk", "--node", "worker1", "--of", "/var")
    assert (code, out) == (0, "disk is ok: cleared by admin\n")


def test_an_acknowledgement_says_until_when_and_why(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/health/checks", [check(id="1")])
    logged_in.on("PUT", "/health/checks/1/acknowledgement", check())
    code, out, _ = run("health", "acknowledge", "disk", "--node", "worker1", "--for", "2h", "--comment", "ordered")
    assert code == 0
    assert out.startswith("Nobody is told of disk until 20")
    assert logged_in.last.body["comment"] == "ordered"


def test_sizing_tells_what_each_service_needs_without_asking_anybody(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    code, out, _ = run("doctor", "sizing", "-o", "json")
    assert code == 0
    told = json.loads(out)
    rows = {each["service"]: each for each in told["services"]}
    assert len(rows) == 7
    assert (rows["agent"]["cores"], rows["agent"]["memory_gib"], rows["agent"]["disk_gib"]) == (4, 32, 512)
    assert told["machine"]["cores"] == 1
    assert rows["PostgreSQL"]["lacking"].startswith("1 of 2 cores")
    twice = json.loads(run("doctor", "sizing", "--recommended", "-o", "json")[1])["services"]
    assert [(each["cores"], each["memory_gib"]) for each in twice if each["service"] == "console"] == [(4, 8)]
    text = run("doctor", "sizing")[1]
    assert "This machine has 1 cores" in text
    assert "has 1 of 2 cores" in text
