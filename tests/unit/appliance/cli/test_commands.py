"""All commands at once: JSON everywhere, help without offers to change the user's files, completion, a fast start."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from appliance.cli.app import COMMANDS, root
from appliance.cli.completion import Shell
from tests.unit.appliance.cli.conftest import FakeApi, Run
from tests.unit.appliance.cli.samples import project, session

START_CPU_S = 0.5
"""Twice the aim: other tests run beside this one, and share the caches of its core."""
PENSTOCK = Path(sys.executable).with_name("penstock")
SAYS_ONLY_THAT_IT_IS_DONE = {
    *(
        "login",
        "logout",
        "language",
        "project set",
        "user password",
        "user logout",
        "node end-unknown",
        "apikey revoke",
        "notices end",
    ),
    *(
        f"{group} delete"
        for group in ("project", "group", "image", "preset", "sandbox", "node", "user", "policy", "audit")
    ),
    *("domain delete", "reservoir prune", "reservoir key rotate", "reservoir uploads remove-account"),
    *("reservoir verify", "reservoir uploads allow", "reservoir uploads deny", "reservoir uploads add-account"),
    *("reservoir uploads add-owner", "reservoir uploads remove-owner"),
    *("lab up", "lab down", "site verify"),
    # how far it is, and why it goes no further
    *("node add", "node remove", "node replace"),
}
SHOWS_WHAT_IS_NOT_OURS = {
    *("bash", "exec", "cp", "completion", "scheduler save", "reservoir receipt", "audit copy"),
    # what units run
    *("backup carry-out", "repair climb", "repair serve"),
}
"""A session's bytes, a script, a file."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    top: Any = typer.main.get_command(root)
    for name in COMMANDS:
        yield from below(name, top.get_command(None, name))


def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for rest, inner in command.commands.items():
            yield from below(f"{name} {rest}", inner)
    else:
        yield name, command


EVERY = dict(commands())
OURS = sorted(name for name in EVERY if name.split()[0] not in ("reservoir", "site", "lab"))


@pytest.mark.parametrize("name", OURS)
def test_whatever_shows_something_shows_it_as_json_too(name: str) -> None:
    options = {flag for parameter in EVERY[name].params for flag in parameter.opts}
    silent = name in SAYS_ONLY_THAT_IT_IS_DONE | SHOWS_WHAT_IS_NOT_OURS
    assert ({"-o", "--output"} <= options) is not silent


def test_the_silent_ones_exist() -> None:
    named = {name for name in SAYS_ONLY_THAT_IT_IS_DONE | SHOWS_WHAT_IS_NOT_OURS if name.split()[0] in COMMANDS}
    assert {name for name in named if name.split()[0] not in ("reservoir", "site", "lab")} <= set(OURS)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_no_help_offers_to_change_the_user_s_files(run: Run, name: str) -> None:
    code, out, _ = run(*name.split(), "--help")
    assert code == 0
    assert "Usage: penstock" in out
    assert "--install-completion" not in out


@pytest.mark.parametrize("name", sorted({*COMMANDS, *(name.rpartition(" ")[0] for name in EVERY)} - {""}))
def test_every_help_is_plain_and_begins_with_what_there_is(run: Run, name: str) -> None:
    out = run(*name.split(), "--help")[1]
    assert out.isascii()
    assert re.match(r"Usage: .*\n(?: +.*\n)*\n  \w", out)


def test_help_lists_every_command_with_one_line(run: Run) -> None:
    out = run("--help")[1]
    for name, (_, summary) in COMMANDS.items():
        assert name in out
        assert summary.split(":")[0].split()[0] in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("lst", "no such command 'lst'. Hint: did you mean list?"),
        ("project craete", "no such command 'craete'. Hint: did you mean create?"),
        ("frobnicate", "no such command 'frobnicate'. Hint: see `penstock -h`"),
        ("get", "NAME: this is required. Hint: see `penstock get -h`"),
        ("submit x", "-i: no image is named. Hint: name one, or a session with `--like`"),
        ("node drain w1 --timout 1m", "--timout: there is no such option. Hint: did you mean --timeout?"),
        (
            "submit x -i python --within rack",
            "--within: 'rack' is not one of 'anywhere', 'switch', 'node', 'island'. Hint: ",
        ),
        ("submit x -i python -g 1 --replicas many", "--replicas: 'many' is no number of containers"),
    ],
)
def test_a_mistake_in_what_is_typed_is_told_with_its_place_and_a_hint(run: Run, words: str, said: str) -> None:
    code, out, err = run(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {said}"), err
    assert err.count("\n") == 1


def test_a_group_without_a_command_shows_its_help(run: Run) -> None:
    code, out, err = run("project")
    assert (code, out) == (2, "")
    assert err.startswith("Usage: penstock project")


@pytest.mark.parametrize("shell", Shell)
def test_completion_prints_a_script_for_each_shell(run: Run, shell: Shell) -> None:
    code, out, err = run("completion", shell.value)
    assert (code, err) == (0, "")
    assert "_PENSTOCK_COMPLETE=complete_" + shell.value in out


def complete(run: Run, monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    monkeypatch.setenv("_PENSTOCK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    out = run()[1].split()
    monkeypatch.delenv("_PENSTOCK_COMPLETE")
    return out


def test_a_shell_completes_commands_and_options(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(run, monkeypatch, "penstock pr") == ["priority", "project", "preset"]
    assert complete(run, monkeypatch, "penstock project de") == ["delete"]
    assert complete(run, monkeypatch, "penstock submit --lo") == ["--local-image"]
    assert complete(run, monkeypatch, "penstock user create x --role a") == ["admin", "auditor"]


def test_a_shell_completes_names_that_the_api_knows(
    logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in.on("GET", "/sessions", [session(), session(name="second"), session(name="fifth")])
    logged_in.on("GET", "/projects", [project(), project(name="team-b")])
    assert complete(run, monkeypatch, "penstock get fi") == ["first", "fifth"]
    assert logged_in.last.query["project"] == "team-a"
    assert complete(run, monkeypatch, "penstock delete -p team-b sec") == ["second"]
    assert logged_in.last.query["project"] == "team-b"
    assert complete(run, monkeypatch, "penstock list -p team-") == ["team-a", "team-b"]


def test_a_completion_that_learns_nothing_says_nothing(
    logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in.trouble = ConnectionRefusedError()
    assert complete(run, monkeypatch, "penstock get fi") == []


def test_the_command_starts_fast(tmp_path: Path) -> None:
    """Processor time of the best of some starts: others may use the machine meanwhile."""
    best = min(start_cpu_s(tmp_path) for _ in range(8))
    assert best < START_CPU_S


def start_cpu_s(home: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {"XDG_CONFIG_HOME": str(home), "PATH": "/usr/bin:/bin"}
    result = subprocess.run([PENSTOCK, "list"], env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "you are not logged in" in result.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_the_start_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['penstock']; import appliance.cli.session; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "httpx", "rich", "websockets", "asyncio", "yaml", "fastapi", "sqlalchemy", "numpy"}
    assert not heavy & set(result.stdout.split())
