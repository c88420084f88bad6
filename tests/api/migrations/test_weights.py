"""The step to optional weights: what was 0, the quota, is no weight, and comes back as 0; others stay."""

from __future__ import annotations

import pytest
from alembic import command
from sqlalchemy import Connection, text

from api.database import Database
from api.migrations import schema

pytestmark = pytest.mark.anyio

OLD, NEW = "0046", "0050"

NAMES = "projects", "domains"
INSERTS = (
    """INSERT INTO projects (id, name, description, quota_milli, over_quota_weight, created_at) VALUES
    (gen_random_uuid(), 'a', '', 0, 0, now()), (gen_random_uuid(), 'b', '', 0, 3, now())""",
    """INSERT INTO domains (id, name, description, over_quota_weight, created_at) VALUES
    (gen_random_uuid(), 'x', '', 0, now()), (gen_random_uuid(), 'y', '', 2, now())""",
)


def weights(connection: Connection) -> list[list[int | None]]:
    tables = [connection.execute(text(f"SELECT over_quota_weight FROM {each} ORDER BY name")) for each in NAMES]
    return [list(each.scalars()) for each in tables]


def there_and_back(connection: Connection) -> None:
    config = schema.config(connection)
    command.upgrade(config, OLD)
    for insert in INSERTS:
        connection.execute(text(insert))
    command.upgrade(config, NEW)
    assert weights(connection) == [[None, 3], [None, 2]]
    for name in NAMES:
        connection.execute(text(f"UPDATE {name} SET over_quota_weight = 0 WHERE over_quota_weight > 0"))
    command.downgrade(config, OLD)
    assert weights(connection) == [[0, 0], [0, 0]], "no site of before knows another word for the quota"


async def test_no_site_shares_otherwise_after_the_step(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    try:
        async with database.engine.begin() as connection:
            await connection.run_sync(there_and_back)
    finally:
        await database.close()
