"""The migrations make exactly the tables that the code describes, and can be undone."""

from __future__ import annotations

from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from api.database import Database
from api.migrations import schema
from common.errors import UnavailableError

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


async def test_an_api_works_on_a_later_schema_that_says_so_and_on_no_other(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    own = max(schema.SERVES, "0024")

    async def become(served: str | None) -> None:
        """Let a later version have changed the schema."""
        async with database.engine.begin() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
            said = f"'serves {served}'" if served else "NULL"
            await connection.execute(text(f"COMMENT ON TABLE alembic_version IS {said}"))

    try:
        with pytest.raises(UnavailableError, match="of an earlier version"):
            await schema.check(database)
        await schema.migrate(database)
        await schema.check(database)
        await become(own)
        await schema.check(database)
        assert await schema.is_current(database)
        assert not await schema.migrate(database), "what is later stays as it is"
        for served in ("9999", None):
            await become(served)
            assert not await schema.is_current(database)
            with pytest.raises(UnavailableError, match=r"of a later version \(9999\)"):
                await schema.check(database)
    finally:
        await database.close()


async def test_what_the_schema_serves_needs_to_know_nothing_of_later_steps(empty_database_url: str) -> None:
    """Since `SERVES` steps only add: columns that may be left out, tables, indexes."""
    database = Database(empty_database_url)

    def columns(connection: Connection, step: str) -> dict[tuple[str, str], dict[str, Any]]:
        command.upgrade(schema.config(connection), step)
        found = inspect(connection)
        return {
            (name, each["name"]): dict(each) for name in found.get_table_names() for each in found.get_columns(name)
        }

    try:
        async with database.engine.begin() as connection:
            before = await connection.run_sync(columns, schema.SERVES)
            after = await connection.run_sync(columns, "head")
    finally:
        await database.close()
    told = {key: (str(each["type"]), each["nullable"]) for key, each in before.items()}
    assert told == {key: (str(after[key]["type"]), after[key]["nullable"]) for key in before if key in after}
    tables = {table for table, _ in before}
    new = [each for key, each in after.items() if key not in before and key[0] in tables]
    assert all(each["nullable"] or each["default"] for each in new)
