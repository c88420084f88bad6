"""The commands of `python -m api`, and the settings they read."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from api import __main__ as program
from api import settings
from api.database import Database
from api.resources.nodes.schemas import NodeView
from api.resources.users import service as users
from api.tables.nodes import Node
from common.errors import InputError, PenstockError, UnavailableError


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("PENSTOCK_API_DATABASE_URL", database_url)
    return CliRunner()


def changed(runner: CliRunner, *words: str, stdin: str | None = None) -> bool:
    result = runner.invoke(program.app, words, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert set(answer) == {"changed"}
    return bool(answer["changed"])


def test_migrate_and_the_first_administrator(run: CliRunner) -> None:
    assert changed(run, "migrate")
    assert not changed(run, "migrate")
    assert changed(run, "create-admin", "--name", "admin", stdin="Correct1horse!\n")
    assert not changed(run, "create-admin", "--name", "admin", stdin="Correct1horse!\n")
    assert not changed(run, "create-admin", "--name", "admin", stdin="")


def test_the_first_administrators_password_may_be_for_once(run: CliRunner, database_url: str) -> None:
    changed(run, "migrate")
    assert changed(run, "create-admin", "--name", "admin", "--change-at-first-login", stdin="Correct1horse!\n")

    async def must_change() -> bool:
        database = Database(database_url)
        async with database.reading() as db:
            admin = await users.get(db, "admin")
        await database.close()
        return admin.must_change_password

    assert asyncio.run(must_change())


def test_a_weak_password_is_refused(run: CliRunner) -> None:
    changed(run, "migrate")
    with pytest.raises(InputError, match="password"):
        changed(run, "create-admin", "--name", "admin", stdin="weak\n")


def test_images_of_a_publication(run: CliRunner, tmp_path: Path) -> None:
    changed(run, "migrate")
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
    changed(run, "migrate")
    assert json.loads(run.invoke(program.app, ["list-nodes"], catch_exceptions=False).stdout) == []

    async def add() -> None:
        database = Database(database_url)
        async with database.transaction() as db:
            db.add(Node(name="worker1", address="10.0.0.3", port=6001))
        await database.close()

    asyncio.run(add())
    answer = run.invoke(program.app, ["list-nodes"], catch_exceptions=False).stdout
    [node] = TypeAdapter(list[NodeView]).validate_json(answer)
    assert (node.name, node.endpoint, node.groups) == ("worker1", "tcp://10.0.0.3:6001", [])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"images": [{"name": "x"}]}', '{"images": [{"name": "X Y", "tag": "1"}]}']
)
def test_a_bad_list_of_images(run: CliRunner, tmp_path: Path, text: str) -> None:
    changed(run, "migrate")
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


def test_an_embedded_database_needs_no_migration_by_hand(run: CliRunner) -> None:
    assert changed(run, "create-admin", "--name", "admin", stdin="Correct1horse!\n")


def test_a_database_that_is_not_there(run: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_API_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/nothing/penstock.db")
    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    with pytest.raises(UnavailableError, match="cannot be reached: unable to open database file"):
        changed(run, "migrate")
    assert not started, "it would answer to an event loop that has ended"


def test_serving_needs_a_certificate_towards_the_agents(run: CliRunner) -> None:
    with pytest.raises(PenstockError, match="PENSTOCK_API_AGENT_CA"):
        run.invoke(program.app, ["serve"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({"PORT": "0"}, "PENSTOCK_API_PORT"),
        ({"PORT": "x"}, "PENSTOCK_API_PORT"),
        ({"DATABASE": "x"}, "PENSTOCK_API_DATABASE"),
        ({"SOCKET_MODE": "rw"}, "PENSTOCK_API_SOCKET_MODE"),
        ({"VOLUME_ROOT": "srv"}, "PENSTOCK_API_VOLUME_ROOT"),
        ({"TLS_CERT": "/x"}, "PENSTOCK_API_*"),
        ({"AGENT_CA": "/x"}, "PENSTOCK_API_*"),
        ({"FGPU_PER_GPU": "7"}, "PENSTOCK_API_STEPS_PER_FGPU"),
    ],
)
def test_bad_settings_are_named(variables: dict[str, str], where: str) -> None:
    with pytest.raises(InputError) as raised:
        settings.load({f"PENSTOCK_API_{name}": value for name, value in variables.items()})
    assert raised.value.problems[0].where == where


def test_good_settings() -> None:
    loaded = settings.load(
        {
            "PENSTOCK_API_SOCKET": "/run/x",
            "PENSTOCK_API_SOCKET_MODE": "0666",
            "PENSTOCK_API_VOLUME_ROOT": "",
            "HOME": "/",
        }
    )
    assert (loaded.socket, loaded.socket_mode, loaded.volume_root) == (Path("/run/x"), 0o666, None)
    assert loaded.trusts_client_headers
    assert not settings.load({}).trusts_client_headers
    assert settings.load({"PENSTOCK_API_TRUST_CLIENT_HEADERS": "1"}).trusts_client_headers
