"""The migrations make exactly the tables that the code describes, and can be undone."""

from __future__ import annotations

from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect

from api.database import Database
from api.migrations import schema

pytestmark = pytest.mark.anyio


def differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return list(compare_metadata(context, schema.metadata))


def undo(connection: Connection) -> None:
    command.downgrade(schema.config(connection), "base")


async def test_migrations_and_models_agree(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    try:
        assert not await schema.is_current(database)
        assert await schema.migrate(database)
        assert await schema.is_current(database)
        assert not await schema.migrate(database), "a second run changes nothing"
        async with database.engine.connect() as connection:
            assert await connection.run_sync(differences) == []
    finally:
        await database.close()


async def test_migrations_can_be_undone(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    try:
        await schema.migrate(database)
        async with database.engine.begin() as connection:
            await connection.run_sync(undo)
        async with database.engine.connect() as connection:
            tables = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        assert tables == ["alembic_version"]
        assert await schema.migrate(database)
    finally:
        await database.close()
