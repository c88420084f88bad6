"""The commands of sessions: what they ask of the API, and what they show."""

from __future__ import annotations

import json
from http.client import IncompleteRead

import pytest

from appliance.cli import config, output
from tests.unit.appliance.cli.conftest import URL, Answer, FakeApi, Run
from tests.unit.appliance.cli.samples import container, session, waiting

REASON = "project team-a holds 1 of 1 GPU"


def test_get_golden(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    found = session(
        created_at="2026-01-02T03:04:00+00:00",
        expires_at="2026-01-02T05:04:05+00:00",
        extended_s=3600,
        cpu_milli=2500,
        memory_mib=6144,
        kind="interactive",
        size=2,
        within="switch",
        containers=[container(), container(rank=1, node="worker2", status="failed", error="no GPU", exit_code=1)],
        urls=["https://edge:8443/first-8888/", "https://edge:8443/first-6006/"],
    )
    logged_in.on("GET", "/sessions/first", found)
    code, out, _ = run("get", "first")
    assert code == 0
    assert out == (
        "Name:          first\n"
        "Status:        Running\n"
        "Project:       team-a\n"
        "User:          alice\n"
        "Type:          interactive, priority 50\n"
        "Image:         python:3.11\n"
        "Command:       python3 train.py '--name=a b'\n"
        "Containers:    2, within a switch where it can be, each with:\n"
        "GPUs:          0.5\n"
        "CPUs:          2.5\n"
        "Memory:        6.0G\n"
        "Shared memory: 64 MiB\n"
        "Nodes:         worker1, worker2\n"
        "URL:           https://edge:8443/first-8888/\n"
        "URL:           https://edge:8443/first-6006/\n"
        "Created:       2026-01-02T03:04:00+00:00\n"
        "Started:       2026-01-02T03:04:05.678+00:00\n"
        "Time limit:    2026-01-02T05:04:05+00:00, extended by 1h\n"
        "\n"
        "CONTAINER  NODE     STATUS   GPUS                  EXIT CODE  ERROR\n"
        "0          worker1  Running  0.5 of SIM-worker1-0  -\n"
        "1          worker2  Failed   0.5 of SIM-worker1-0  1          no GPU\n"
    )
    assert logged_in.last.query == {"project": "team-a"}


def test_get_says_why_a_session_waits_and_its_place_in_the_queue(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/third", waiting(reason=REASON, position=2, attempt=1, starts_at="2027-01-02T03:00Z"))
    out = run("get", "third")[1]
    assert f"Reason:         {REASON}\n" in out
    assert "Queue position: 2\n" in out
    assert "Attempt:        2\n" in out
    assert "Starts at:      2027-01-0" in out
    assert "CONTAINER" not in out


def test_get_says_why_a_session_failed(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/first", session(state="FAILED", reason="exit code 0?", exit_code=0))
    out = run("get", "first")[1]
    assert "Reason:        exit code 0?\n" in out
    assert "Exit code:     0\n" in out


def test_extend_puts_off_the_end(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    logged_in.on("POST", "/sessions/first/extend", session(expires_at="2026-01-02T05:04:05+00:00"))
    assert run("extend", "first", "1h30m") == (0, "first: runs until 2026-01-02T05:04:05+00:00\n", "")
    assert (logged_in.last.body, logged_in.last.query) == ({"seconds": 5400}, {"project": "team-a"})
    assert run("extend", "first", "soon")[0] == 2


def test_priority_among_those_of_the_project(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("PATCH", "/sessions/third", waiting(priority=80))
    assert run("priority", "third", "80") == (0, "third: priority 80\n", "")
    assert (logged_in.last.body, logged_in.last.query) == ({"priority": 80}, {"project": "team-a"})


def test_get_as_json(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/third", third := waiting(reason=REASON))
    assert json.loads(run("get", "third", "-o", "json")[1]) == third


def test_logs_pass_the_bytes_through(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/first/logs", "epoch 1\n손실 0.5\n".encode())
    assert run("logs", "first", "-f", "--tail", "2") == (0, "epoch 1\n손실 0.5\n", "")
    assert logged_in.last.query == {"project": "team-a", "follow": "true", "tail": "2"}


def test_a_log_that_breaks_off_is_an_error(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_answer: Answer, _size: int) -> bytes:
        raise IncompleteRead(b"")

    monkeypatch.setattr(Answer, "read1", broken)
    logged_in.on("GET", "/sessions/first/logs", b"epoch 1\n")
    code, _, err = run("logs", "first", "-f")
    assert code == 5
    assert err.startswith(f"error: {URL}: it does not speak HTTP as expected (IncompleteRead).")


def test_an_empty_name_is_refused_before_anything_is_asked(logged_in: FakeApi, run: Run) -> None:
    for command in (["get", ""], ["delete", ""], ["user", "delete", ""], ["project", "delete", ""]):
        code, out, err = run(*command)
        assert (code, out) == (2, "")
        assert err == "error: NAME: the name is empty. Cure: give a name\n"
    assert not logged_in.calls


def test_delete_goes_on_after_a_refusal_and_ends_with_it(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("DELETE", "/sessions/a", session(name="a", state="TERMINATING"), status=202)
    logged_in.refuse("DELETE", "/sessions/b", 404, "name", "there is no session b", "look with penstock list")
    logged_in.on("DELETE", "/sessions/c", session(name="c", state="TERMINATED"), status=202)
    code, out, err = run("delete", "-p", "team-d", "a", "b", "c")
    assert code == 6
    assert out == "a: Terminating\nc: Terminated\n"
    assert err == "error: name: there is no session b. Cure: look with penstock list\n"
    assert [call.query for call in logged_in.calls] == [{"project": "team-d"}] * 3


def test_commands_of_one_session_need_a_project(api: FakeApi, run: Run) -> None:
    config.save(config.Config(URL, "k", "1"))
    for command in (["get", "x"], ["logs", "x"], ["delete", "x"], ["submit", "x", "-i", "y", "-g", "1"], ["bash", "x"]):
        code, _, err = run(*command)
        assert code == 2
        assert err == (
            "error: project: no project is chosen. Cure: run `penstock project set NAME`, or add `-p NAME`\n"
        )
    assert not api.calls


def test_names_cannot_leave_their_place_in_the_path(logged_in: FakeApi, run: Run) -> None:
    logged_in.refuse("GET", "/sessions/..%2Fusers%3Fx", 422, "name", "is not a name", "correct it")
    assert run("get", "../users?x")[0] == 2
