"""The step to waits: those of spans that there are stay unknown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from alembic import command
from sqlalchemy import Connection, MetaData, Table, select

from api.migrations import schema
from tests.api.migrations.steps import try_step
from tests.api.migrations.test_upgrade import MOMENT, PROJECT, RUNS, first_tables

pytestmark = pytest.mark.anyio

OLD, NEW = "0046", "0047"
SPANS = ((RUNS, 1, 2), (RUNS, 2, 3), (RUNS, 5, 6), (UUID(int=99), 1, 2))
"""Whose they are, and the hours when they began and ended."""


def spans(connection: Connection) -> list[dict[str, Any]]:
    """Return what the table has."""
    table = Table("spans", MetaData(), autoload_with=connection)
    return [dict(row) for row in connection.execute(select(table).order_by(table.c.id)).mappings()]


def there_and_back(connection: Connection) -> None:
    first_tables(connection)
    config = schema.config(connection)
    command.upgrade(config, OLD)
    table = Table("spans", MetaData(), autoload_with=connection)
    connection.execute(table.delete())
    for number, (session, start, end) in enumerate(SPANS):
        values = {"session_name": "s", "user_name": "ada", "project_id": PROJECT, "project_name": "team-a"}
        times = {"started_at": MOMENT + timedelta(hours=start), "ended_at": MOMENT + timedelta(hours=end)}
        values |= {"id": UUID(int=number), "session_id": session, "gpu_milli": 1000}
        connection.execute(table.insert(), {**values, **times})
    before = spans(connection)
    command.upgrade(config, NEW)
    assert [row["waited_s"] for row in spans(connection)] == [None] * len(SPANS)
    command.downgrade(config, OLD)
    assert spans(connection) == before


async def test_waits_of_before_are_unknown(empty_database_url: str) -> None:
    await try_step(empty_database_url, there_and_back)
