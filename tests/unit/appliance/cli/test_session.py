"""The commands of sessions: what they ask of the API, and what they show."""

from __future__ import annotations

import json
import shlex
from http.client import IncompleteRead
from typing import Any

import pytest

from appliance.cli import config
from tests.unit.appliance.cli.conftest import URL, Answer, FakeApi, Run
from tests.unit.appliance.cli.samples import session, waiting

REASON = "project team-a holds 1 of 1 GPU"


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
        "created_by_cli": True,
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


def test_list_of_another_project_with_the_ended_ones_as_json(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions", [third := waiting(reason=REASON)])
    code, out, _ = run("list", "-p", "team-b", "--all", "-o", "json")
    assert (code, json.loads(out)) == (0, [third])
    assert logged_in.last.query == {"project": "team-b", "all": "true", "limit": "1000"}


def test_list_without_a_project_shows_all_that_the_user_may_see(api: FakeApi, run: Run) -> None:
    config.save(config.Config(URL, "k", "1"))
    api.on("GET", "/sessions", [])
    assert run("list")[0] == 0
    assert api.last.query == {"all": "false", "limit": "1000"}


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
