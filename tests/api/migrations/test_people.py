"""The step to accounts that belong to entries of the directory: its people keep their roles, which it still gives."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from alembic import command
from sqlalchemy import Connection, MetaData, Table, select

from api.migrations import schema
from tests.api.migrations.steps import try_step
from tests.api.migrations.test_upgrade import ROWS

pytestmark = pytest.mark.anyio

OLD, NEW = "0009", "0010"
SOURCES = {"ada": "local", "carol": "ldap"}


def people(connection: Connection) -> dict[str, Any]:
    """Return all users by name."""
    table = Table("users", MetaData(), autoload_with=connection)
    return {row["name"]: row for row in connection.execute(select(table)).mappings()}


def there_and_back(connection: Connection) -> None:
    config = schema.config(connection)
    command.upgrade(config, OLD)
    table = Table("users", MetaData(), autoload_with=connection)
    for number, (name, source) in enumerate(SOURCES.items(), start=1):
        row = {**ROWS["users"][0], "id": UUID(int=number), "name": name, "source": source}
        connection.execute(table.insert(), row)
    before = people(connection)
    command.upgrade(config, NEW)
    after = people(connection)
    assert {name: row["role_source"] for name, row in after.items()} == SOURCES
    assert {row["directory_id"] for row in after.values()} == {None}
    command.downgrade(config, OLD)
    assert people(connection) == before


async def test_accounts_are_the_same_on_both_sides(empty_database_url: str) -> None:
    await try_step(empty_database_url, there_and_back)
