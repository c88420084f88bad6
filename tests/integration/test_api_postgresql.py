"""The API on PostgreSQL: the tests of the resources once more, and what only a shared database has."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api import __main__ as program
from api.database import Database
from common.errors import UnavailableError
from tests.postgresql import new_database
from tests.api.cluster import _cheap_hashes, anyio_backend, cluster  # noqa: F401
from tests.api.resources.domains.test_domains import *  # noqa: F403
from tests.api.resources.logins.test_logins import *  # noqa: F403
from tests.api.resources.nodes.test_nodes import *  # noqa: F403
from tests.api.resources.projects.test_projects import *  # noqa: F403
from tests.api.migrations.test_schema import *  # noqa: F403
from tests.api.migrations.test_upgrade import *  # noqa: F403
from tests.api.resources.usage.test_usage import *  # noqa: F403
from tests.api.resources.users.test_changes import *  # noqa: F403
from tests.api.resources.user_policies.test_user_policies import *  # noqa: F403
from tests.api.resources.users.test_users import *  # noqa: F403

pytestmark = pytest.mark.anyio


@pytest.fixture
def database_url(postgresql_server: Path) -> str:
    return new_database(postgresql_server)


async def test_one_process_leads(database_url: str) -> None:
    first, second = Database(database_url), Database(database_url)
    try:
        async with second.leadership() as follower:
            async with first.leadership() as leader:
                assert await leader.hold()
                assert await leader.hold()
                assert not await follower.hold()
            # the leader's connection has ended, and its lock with it: the server notices in its own time
            leads = False
            for _ in range(200):
                leads = leads or await follower.hold()
                await asyncio.sleep(0 if leads else 0.05)
            assert leads
    finally:
        await first.close()
        await second.close()


def test_a_schema_that_is_behind_is_named(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_API_DATABASE_URL", database_url)
    words = ["create-admin", "--name", "admin"]
    with pytest.raises(UnavailableError, match="python -m api migrate"):
        CliRunner().invoke(program.app, words, input="Correct1horse!\n", catch_exceptions=False)
    assert CliRunner().invoke(program.app, ["migrate"], catch_exceptions=False).stdout == '{"changed": true}\n'
    result = CliRunner().invoke(program.app, words, input="Correct1horse!\n", catch_exceptions=False)
    assert result.stdout == '{"changed": true}\n'


def test_a_server_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_API_DATABASE_URL", f"postgresql+psycopg:///penstock?host={tmp_path}")
    with pytest.raises(UnavailableError, match="the database cannot be reached"):
        CliRunner().invoke(program.app, ["migrate"], catch_exceptions=False)
