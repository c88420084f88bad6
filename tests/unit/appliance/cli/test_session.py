"""The commands of sessions: what they ask of the API, and what they show."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from http.client import IncompleteRead
from typing import Any

import pytest

from appliance.cli import config, output
from tests.unit.appliance.cli.conftest import URL, Answer, FakeApi, Run

REASON = "project team-a holds 1 of 1 GPU"


def session(**changes: Any) -> dict[str, Any]:
    return {
        "id": "5c7b",
        "name": "first",
        "project": "team-a",
        "user": "alice",
        "image": "python:3.11",
        "kind": "training",
        "gpu_milli": 500,
        "state": "RUNNING",
        "reason": "",
        "node": "worker1",
        "gpus": [{"index": 0, "uuid": "SIM-worker1-0", "milli": 500}],
        "command": ["python3"],
        "args": ["train.py", "--name=a b"],
        "created_at": (datetime.now(UTC) - timedelta(seconds=125)).isoformat(),
        "started_at": "2026-01-02T03:04:05.678+00:00",
        "finished_at": None,
        "exit_code": None,
        "url": None,
        **changes,
    }


def waiting() -> dict[str, Any]:
    return session(name="third", state="PENDING", reason=REASON, node=None, gpus=[], started_at=None)


def submit(run: Run, api: FakeApi, line: str) -> Any:
    api.on("POST", "/sessions", session(), status=201)
    code, _, err = run(*shlex.split(line))
    assert (code, err) == (0, "")
    return api.last.body


def test_submit_sends_what_was_asked_and_shows_the_state(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/sessions", session(state="PENDING"), status=201)
    code, out, _ = run("submit", "first", "-i", "python", "-g", "0.5")
    assert (code, out) == (0, "first: Pending, 0.5 GPU, project team-a\n")
    assert logged_in.last.body == {
        "name": "first",
        "project": "team-a",
        "image": "python",
        "gpu_milli": 500,
        "interactive": False,
        "command": None,
        "args": [],
    }
    assert logged_in.last.headers["Authorization"] == "Bearer pk_secret"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("submit hyper1 -i quickstart -g 1", {"image": "quickstart", "gpu_milli": 1000}),
        (
            "submit build1 -i python -g 1 --interactive --command sleep --args infinity",
            {"interactive": True, "command": ["sleep"], "args": ["infinity"]},
        ),
        ("submit b-1-g06 -i quickstart -g 0.6 --interactive -p team-b", {"gpu_milli": 600, "project": "team-b"}),
        (
            "submit netapp1 -i tensorflow:20.01.0 --command python --args /scripts/run.py --args --num_mounts=2 -g 1",
            {
                "command": ["python"],
                "args": ["/scripts/run.py", "--num_mounts=2"],
            },
        ),
        (
            'submit x -i y -g 1 --args="--base_url=z" --command=start.sh',
            {"command": ["start.sh"], "args": ["--base_url=z"]},
        ),
        ("submit x -i y -g 1 --command 'sh -c' --args 'a; b'", {"command": ["sh", "-c"], "args": ["a; b"]}),
        ("submit x -i y -g -1", {"gpu_milli": -1000}),
    ],
)
def test_the_reference_s_lines(logged_in: FakeApi, run: Run, line: str, wanted: dict[str, Any]) -> None:
    body = submit(run, logged_in, line)
    assert {key: body[key] for key in wanted} == wanted


@pytest.mark.parametrize(("units", "milli"), [("1", 200), ("2.5", 500), ("0.5", 100), ("-1", -200)])
def test_fgpu_counts_in_units_of_the_administrator_s_split(
    logged_in: FakeApi, run: Run, units: str, milli: int
) -> None:
    logged_in.on("GET", "/settings", {"fgpu_milli": 200, "step_milli": 100})
    assert submit(run, logged_in, f"submit x -i y --fgpu {units}")["gpu_milli"] == milli


@pytest.mark.parametrize(
    ("options", "where", "reason"),
    [
        ("", "-g", "no share of GPUs is given"),
        ("-g 1 --fgpu 1", "-g", "the share is given twice"),
        ("-g half", "-g", "'half' is not a number of GPUs"),
        ("-g 0.0001", "-g", "finer than a thousandth"),
        ("--fgpu 0.001", "--fgpu", "not a whole number of milli-GPU"),
        ("-g 1 --command 'a \"b'", "--command", "cannot be split into words"),
    ],
)
def test_bad_options_are_refused_before_anything_is_asked(
    logged_in: FakeApi, run: Run, options: str, where: str, reason: str
) -> None:
    logged_in.on("GET", "/settings", {"fgpu_milli": 200, "step_milli": 100})
    code, out, err = run("submit", "x", "-i", "y", *shlex.split(options))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {where}: ")
    assert reason in err
    assert "Cure: " in err
    assert not [call for call in logged_in.calls if call.method == "POST"]


@pytest.mark.parametrize("option", ["--pvc", "--service-type", "--port", "--local-image", "--large-shm", "-v"])
def test_options_that_would_do_nothing_are_unknown(logged_in: FakeApi, run: Run, option: str) -> None:
    code, _, err = run("submit", "x", "-i", "y", "-g", "1", option, "z")
    assert code == 2
    assert "No such option" in err
    assert not logged_in.calls


def test_list_golden(logged_in: FakeApi, run: Run) -> None:
    preparing = session(name="second", state="PREPARING", kind="interactive", gpu_milli=2500)
    logged_in.on("GET", "/sessions", [session(), preparing, waiting()])
    code, out, _ = run("list")
    assert code == 0
    assert out == (
        "NAME    STATUS             AGE  NODE     IMAGE        TYPE         PROJECT  USER   GPUs\n"
        "first   Running            2m   worker1  python:3.11  Training     team-a   alice  0.5\n"
        "second  ContainerCreating  2m   worker1  python:3.11  Interactive  team-a   alice  2.5\n"
        "third   Pending            2m   -        python:3.11  Training     team-a   alice  0.5\n"
        f"third waits: {REASON}\n"
    )
    assert logged_in.last.query == {"project": "team-a", "all": "false"}


def test_list_of_another_project_with_the_ended_ones_as_json(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions", [third := waiting()])
    code, out, _ = run("list", "-p", "team-b", "--all", "-o", "json")
    assert (code, json.loads(out)) == (0, [third])
    assert logged_in.last.query == {"project": "team-b", "all": "true"}


def test_list_without_a_project_shows_all_that_the_user_may_see(api: FakeApi, run: Run) -> None:
    config.save(config.Config(URL, "k", "1"))
    api.on("GET", "/sessions", [])
    assert run("list")[0] == 0
    assert api.last.query == {"all": "false"}


def test_get_golden(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    logged_in.on("GET", "/sessions/first", session(created_at="2026-01-02T03:04:00+00:00"))
    code, out, _ = run("get", "first")
    assert code == 0
    assert out == (
        "Name:    first\n"
        "Status:  Running\n"
        "Project: team-a\n"
        "User:    alice\n"
        "Type:    training\n"
        "Image:   python:3.11\n"
        "Command: python3 train.py '--name=a b'\n"
        "GPUs:    0.5\n"
        "Node:    worker1\n"
        "On:      0.5 of SIM-worker1-0\n"
        "Created: 2026-01-02T03:04:00+00:00\n"
        "Started: 2026-01-02T03:04:05.678+00:00\n"
    )
    assert logged_in.last.query == {"project": "team-a"}


def test_get_says_why_a_session_waits_or_failed(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/third", waiting())
    assert f"Reason:  {REASON}\n" in run("get", "third")[1]
    logged_in.on("GET", "/sessions/first", session(state="FAILED", reason="exit code 0?", exit_code=0))
    assert "Exit code: 0\n" in run("get", "first")[1]


def test_get_as_json(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/third", third := waiting())
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
