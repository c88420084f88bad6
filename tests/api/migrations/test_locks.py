"""A step of the schema waits for nobody for long: whoever waits for a table makes all others wait behind."""

from __future__ import annotations

import pytest
from alembic import command
from sqlalchemy import Connection, text

from api.database import Database
from api.migrations import schema
from common.errors import UnavailableError

pytestmark = pytest.mark.anyio


def back(connection: Connection) -> None:
    command.downgrade(schema.config(connection), "0016")


async def test_a_table_that_is_in_use_is_not_waited_for(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOCK_TIMEOUT_S", 0.2)
    database, other = Database(empty_database_url), Database(empty_database_url)
    try:
        await schema.migrate(database)
        async with database.engine.begin() as connection:
            await connection.run_sync(back)
        async with other.transaction() as db:
            await db.execute(text("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE"))
            with pytest.raises(UnavailableError, match=r"in use for longer than 0\.2 s") as refused:
                await schema.migrate(database)
            assert refused.value.problems[0].hint.startswith("try again")
        assert await schema.migrate(database)
    finally:
        await database.close()
        await other.close()
