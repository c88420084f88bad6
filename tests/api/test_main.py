"""The commands of `python -m api`."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from api import __main__ as program
from api.database import Database
from api.resources.audit import repository as audit
from api.resources.nodes.schemas import NodeView
from api.resources.users import service as users
from api.tables.nodes import Node, NodeState
from common.errors import InputError, PenstockError, UnavailableError


@pytest.fixture
def new(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Commands on a database without tables."""
    monkeypatch.setenv("PENSTOCK_API_DATABASE_URL", empty_database_url)
    return CliRunner()


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Commands on a database of this version, with the administrator `admin`."""
    monkeypatch.setenv("PENSTOCK_API_DATABASE_URL", database_url)
    return CliRunner()


def add_nodes(database_url: str, **states: str) -> None:
    """Add nodes by their names, each in a state."""

    async def add() -> None:
        database = Database(database_url)
        async with database.transaction() as db:
            for name, state in states.items():
                db.add(Node(name=name, address="10.0.0.3", port=6001, state=NodeState(state)))
        await database.close()

    asyncio.run(add())


def changed(runner: CliRunner, *words: str, stdin: str | None = None) -> bool:
    result = runner.invoke(program.app, words, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert set(answer) == {"changed"}
    return bool(answer["changed"])


def test_migrate_and_the_first_administrator(new: CliRunner) -> None:
    with pytest.raises(UnavailableError, match="python -m api migrate"):
        changed(new, "create-admin", "--name", "admin", stdin="Correct1horse!\n")
    assert changed(new, "migrate")
    assert not changed(new, "migrate")
    assert changed(new, "create-admin", "--name", "admin", stdin="Correct1horse!\n")
    assert not changed(new, "create-admin", "--name", "admin", stdin="Correct1horse!\n")
    assert not changed(new, "create-admin", "--name", "admin", stdin="")


def test_the_first_administrators_password_may_be_for_once(run: CliRunner, database_url: str) -> None:
    assert changed(run, "create-admin", "--name", "ada", "--change-at-first-login", stdin="Correct1horse!\n")

    async def must_change() -> bool:
        database = Database(database_url)
        async with database.reading() as db:
            admin = await users.get(db, "ada")
        await database.close()
        return admin.must_change_password

    assert asyncio.run(must_change())


def test_a_weak_password_is_refused(run: CliRunner) -> None:
    with pytest.raises(InputError, match="password"):
        changed(run, "create-admin", "--name", "ada", stdin="weak\n")


def test_images_of_a_publication(run: CliRunner, tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    also = {"architectures": ["amd64"]}
    python = {"name": "penstock/python", "tag": "3.11", "digest": "sha256:0", "session": True} | also
    node = {"name": "penstock/lab-node", "tag": "12", "digest": "sha256:1", "session": False} | also
    index.write_text(json.dumps({"images": [python, node]}))
    words = ("register-images", "--index", str(index), "--registry")
    assert changed(run, *words, "reservoir:5000")
    assert not changed(run, *words, "reservoir:5000")
    assert changed(run, *words, "reservoir:5001"), "another registry is another reference"


def test_nodes_are_listed_as_the_api_lists_them(run: CliRunner, database_url: str) -> None:
    assert json.loads(run.invoke(program.app, ["list-nodes"], catch_exceptions=False).stdout) == []

    add_nodes(database_url, worker1="ready")
    answer = run.invoke(program.app, ["list-nodes"], catch_exceptions=False).stdout
    [node] = TypeAdapter(list[NodeView]).validate_json(answer)
    assert (node.name, node.endpoint, node.groups) == ("worker1", "tcp://10.0.0.3:6001", [])


def test_nodes_that_are_not_named_are_closed(run: CliRunner, database_url: str) -> None:
    add_nodes(database_url, stays="ready", leaves="ready", gone="lost")

    def modes() -> dict[str, str]:
        listed = json.loads(run.invoke(program.app, ["list-nodes"], catch_exceptions=False).stdout)
        return {node["name"]: node["mode"] for node in listed}

    words = ["close-others", "stays"]
    wanted = [{"name": "leaves", "closed": True, "sessions": []}]
    assert json.loads(run.invoke(program.app, [*words, "--check"], catch_exceptions=False).stdout) == wanted
    assert modes() == {"gone": "active", "leaves": "active", "stays": "active"}
    assert json.loads(run.invoke(program.app, words, catch_exceptions=False).stdout) == wanted
    assert modes() == {"gone": "active", "leaves": "maintenance", "stays": "active"}
    [again] = json.loads(run.invoke(program.app, words, catch_exceptions=False).stdout)
    assert not again["closed"]


def test_each_command_that_changes_something_leaves_a_line_in_the_audit_log(
    run: CliRunner, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_API_AUDIT_FOLDER", str(tmp_path))
    key = tmp_path / "key"
    key.write_text("ab" * 32)
    monkeypatch.setenv("PENSTOCK_API_AUDIT_KEY", str(key))
    index = tmp_path / "index.json"
    image = {
        "name": "penstock/python",
        "tag": "3.11",
        "digest": "sha256:0",
        "session": True,
        "architectures": ["amd64"],
    }
    index.write_text(json.dumps({"images": [image]}))

    async def lines() -> list[tuple[str, str, list[str]]]:
        database = Database(database_url)
        async with database.reading() as db:
            found = await audit.pending(db, 100, 100)
        await database.close()
        return [
            (each.entry["user"], each.entry["object"], [change["kind"] for change in each.changes]) for each in found
        ]

    add_nodes(database_url, leaves="ready")
    before = asyncio.run(lines())
    for _ in range(2):
        changed(run, "create-admin", "--name", "ada", stdin="Correct1horse!\n")
        changed(run, "register-images", "--index", str(index), "--registry", "reservoir:5000")
        run.invoke(program.app, ["close-others", "--check"], catch_exceptions=False)
        run.invoke(program.app, ["close-others"], catch_exceptions=False)
    assert asyncio.run(lines())[len(before) :] == [
        ("command:create-admin", "users/ada", ["users"]),
        ("command:register-images", "images", ["images"]),
        ("command:close-others", "nodes", ["nodes"]),
    ]
    assert "Correct1horse" not in str(asyncio.run(lines()))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"images": [{"name": "x"}]}', '{"images": [{"name": "X Y", "tag": "1"}]}']
)
def test_a_bad_list_of_images(run: CliRunner, tmp_path: Path, text: str) -> None:
    index = tmp_path / "index.json"
    index.write_text(text)
    with pytest.raises(InputError, match=r"index\.json"):
        changed(run, "register-images", "--index", str(index), "--registry", "reservoir:5000")


def test_an_error_becomes_text_and_an_exit_code(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["api", "register-images", "--index", "nothing.json", "--registry", "x"])
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(SystemExit) as raised:
        program.main()
    assert raised.value.code == InputError.exit_code
    assert "nothing.json" in capsys.readouterr().err


def test_a_server_that_is_away_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_API_DATABASE_URL", f"postgresql+psycopg:///penstock?host={tmp_path}")
    with pytest.raises(UnavailableError, match="the database cannot be reached"):
        changed(CliRunner(), "migrate")


def test_serving_needs_a_certificate_towards_the_agents(run: CliRunner) -> None:
    with pytest.raises(PenstockError, match="PENSTOCK_API_AGENT_CA"):
        run.invoke(program.app, ["serve"], catch_exceptions=False)
