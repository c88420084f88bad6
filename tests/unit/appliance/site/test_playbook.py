"""What the runner makes of Ansible's events. Ansible itself is played by a function here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_runner import interface
from ansible_runner.runner import Runner

from appliance.site import playbook
from appliance.site.playbook import Event, Outcome
from common.errors import ProcessError

Script = list[dict[str, Any]]


def event(kind: str, **data: object) -> dict[str, Any]:
    return {"event": kind, "event_data": data}


def task(kind: str, host: str, name: str, **result: object) -> dict[str, Any]:
    return event(f"runner_on_{kind}", host=host, task=name, res=result)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[playbook.Result, list[Event]]]:
    """Run a playbook that says `script` and ends with `code`; returns the result and what the listener heard."""

    def run(script: Script, code: int = 0, said: str = "", **options: Any) -> tuple[playbook.Result, list[Event]]:
        def ansible(**arguments: Any) -> SimpleNamespace:
            status = "successful" if code == 0 else "failed"
            config = SimpleNamespace(command=["ansible-playbook"])
            return SimpleNamespace(rc=code, status=status, config=config, run=lambda: play(**arguments))

        def play(**arguments: Any) -> None:
            artifacts = Path(arguments["artifact_dir"]) / arguments["ident"]
            artifacts.mkdir()
            (artifacts / "stdout").write_text(said)
            (artifacts / "command").write_text("SECRET=1")
            assert not any(arguments["event_handler"](raw) for raw in script)

        monkeypatch.setattr(interface, "init_runner", ansible)
        heard: list[Event] = []
        result = playbook.run("site", {"all": {}}, state=tmp_path / "state", listen=heard.append, **options)
        return result, heard

    return run


def test_events_name_phase_node_task_and_outcome(run: Any) -> None:
    result, heard = run(
        [
            event("playbook_on_start"),
            event("playbook_on_play_start", name="Time"),
            task("start", "w1", "Install chrony"),
            task("ok", "w1", "Install chrony", changed=True),
            task("ok", "w1", "Run chrony", changed=False),
            task("skipped", "w1", "Set the zone"),
            event("playbook_on_play_start", name="Edge"),
            task("ok", "m1", "Configure"),
            event(
                "playbook_on_stats", ok={"w1": 2, "m1": 1}, changed={"w1": 1}, skipped={"w1": 1}, failures={}, dark={}
            ),
        ]
    )
    assert heard == [
        Event("Time", "w1", "Install chrony", Outcome.STARTED),
        Event("Time", "w1", "Install chrony", Outcome.CHANGED),
        Event("Time", "w1", "Run chrony", Outcome.OK),
        Event("Time", "w1", "Set the zone", Outcome.SKIPPED),
        Event("Edge", "m1", "Configure", Outcome.OK),
    ]
    assert result.nodes == {"m1": playbook.Counts(ok=1), "w1": playbook.Counts(ok=2, changed=1, skipped=1)}
    assert result.changes == {"w1": ["Install chrony"]}
    assert list(result.phases) == ["Time", "Edge"]
    result.require_success()


def test_a_failure_names_node_phase_task_reason_log_and_what_to_do(run: Any) -> None:
    result, _ = run(
        [
            event("playbook_on_play_start", name="Database"),
            task("failed", "m1", "Install", msg="non-zero return code", stderr="first\nno room left"),
            task("unreachable", "w1", "Install", msg="Connection timed out"),
            task("failed", "w2", "Copy", results=[{"failed": False}, {"failed": True, "msg": "item 2 is bad"}]),
            task("failed", "w3", "Make a user", censored="the output has been hidden"),
        ],
        code=2,
    )
    with pytest.raises(ProcessError) as caught:
        result.require_success()
    found = [(problem.where, problem.reason) for problem in caught.value.problems]
    assert found == [
        ("m1: Database: Install", "non-zero return code: first\n  no room left"),
        ("w1: Database: Install", "Connection timed out"),
        ("w2: Database: Copy", "item 2 is bad"),
        ("w3: Database: Make a user", "it failed, and what it said is hidden because it handles a secret"),
    ]
    hints = [problem.hint for problem in caught.value.problems]
    assert "run the command again" in hints[0]
    assert "SSH" in hints[1]
    assert all(str(result.log) in hint for hint in hints)


def test_a_role_that_knows_the_hint_is_heard(run: Any) -> None:
    said = "No publication lists images. Hint: run `penstock site deploy`."
    result, _ = run([task("failed", "m1", "Check what the API needs", msg=said)], code=2)
    with pytest.raises(ProcessError) as caught:
        result.require_success()
    (problem,) = caught.value.problems
    assert (problem.reason, problem.hint) == (
        "No publication lists images",
        f"run `penstock site deploy` (log: {result.log})",
    )


def test_ignored_and_rescued_failures_break_nothing(run: Any) -> None:
    result, heard = run(
        [
            event("runner_on_failed", host="w1", task="Probe", res={"msg": "no"}, ignore_errors=True),
            task("failed", "w1", "Try", msg="rescued later"),
        ]
    )
    assert [event.outcome for event in heard] == [Outcome.OK, Outcome.FAILED]
    result.require_success()


def test_an_end_without_a_failed_task_shows_what_ansible_said(run: Any) -> None:
    result, _ = run([], code=4, said="noise\n" * 40 + "ERROR! the role 'x' was not found\n")
    with pytest.raises(ProcessError, match=r"(?s)code 4.*the role 'x' was not found") as caught:
        result.require_success()
    assert str(caught.value).count("noise") < 20


def test_values_are_published_under_the_names_asked_for(run: Any) -> None:
    script = [task("ok", "w1", "Gather", penstock_evidence={"os": "Debian"}, other=1)]
    assert run(script, publish=["penstock_evidence"])[0].published == {"w1": {"penstock_evidence": {"os": "Debian"}}}
    assert run(script)[0].published == {}


def test_logs_are_for_their_owner_only_and_hold_no_environment(run: Any, tmp_path: Path) -> None:
    result, _ = run([])
    assert not (result.log.parent / "command").exists()
    assert (tmp_path / "state" / "hosts.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state" / "runs").is_dir()
    assert result.log.parents[1].stat().st_mode & 0o777 == 0o700


def test_modules_are_read_in_blocks_whatever_the_caller_has_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    heard: list[dict[str, str]] = []

    def run(runner: Runner) -> None:
        heard.append(runner.config.env)
        runner.status = "successful"

    monkeypatch.setattr(Runner, "run", run)
    playbook.run("site", {"all": {}}, state=tmp_path, listen=lambda _: None)
    assert not heard[0]["PYTHONUNBUFFERED"]


def test_old_logs_are_forgotten(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playbook, "RUNS_KEPT", 2)
    for _ in range(4):
        last, _ = run([])
    kept = sorted((tmp_path / "state" / "runs").iterdir())
    assert len(kept) == 2
    assert kept[-1] == last.log.parents[1]


def test_an_interruption_is_one_here_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = SimpleNamespace(command=["ansible-playbook"])
    canceled = SimpleNamespace(rc=254, status="canceled", config=config, run=lambda: None)
    monkeypatch.setattr(interface, "init_runner", lambda **_: canceled)
    with pytest.raises(KeyboardInterrupt):
        playbook.run("site", {"all": {}}, state=tmp_path, listen=lambda _: None)
