"""The step to checks of nodes that have no agent: the way back forgets these, and no others."""

from __future__ import annotations

from uuid import UUID

import pytest
from alembic import command
from sqlalchemy import Connection, MetaData, Table, select

from api.clock import now
from api.migrations import schema
from tests.api.migrations.steps import try_step

pytestmark = pytest.mark.anyio

OLD, NEW = "0027", "0028"


def there_and_back(connection: Connection) -> None:
    config = schema.config(connection)
    command.upgrade(config, NEW)
    checks = Table("health_checks", MetaData(), autoload_with=connection)
    for number, name in enumerate(("", "storage1", "storage2"), start=1):
        row = {"id": UUID(int=number), "node_name": name, "check_id": "disk", "source": "controller"}
        connection.execute(checks.insert(), {**row, "name": "disk", "state": "ok", "since": now()})
    command.downgrade(config, OLD)
    before = Table("health_checks", MetaData(), autoload_with=connection)
    assert connection.execute(select(before.c.id)).scalars().all() == [UUID(int=1)]


async def test_the_way_back_forgets_checks_of_nodes_without_an_agent(empty_database_url: str) -> None:
    await try_step(empty_database_url, there_and_back)
