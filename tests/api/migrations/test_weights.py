"""The step to weights that are no part: what was 0, the quota, is no weight, and on the way back all is as before."""

from __future__ import annotations

import pytest
from alembic import command
from sqlalchemy import Connection, select, text
from sqlalchemy.orm import Session

from api.migrations import schema
from api.tables.domains import Domain
from api.tables.projects import Project
from tests.api.migrations.steps import try_step

pytestmark = pytest.mark.anyio

OLD, NEW = "0048", "0049"

NAMES = "projects", "domains"
INSERTS = (
    """INSERT INTO projects (id, name, description, quota_milli, over_quota_weight, created_at) VALUES
    (gen_random_uuid(), 'a', '', 0, 0, now()), (gen_random_uuid(), 'b', '', 0, 3, now())""",
    """INSERT INTO domains (id, name, description, over_quota_weight, created_at) VALUES
    (gen_random_uuid(), 'x', '', 0, now()), (gen_random_uuid(), 'y', '', 2, now())""",
)


def weights(connection: Connection) -> list[list[int | None]]:
    with Session(connection) as db:
        projects, domains = (
            db.scalars(select(Project).order_by(Project.name)),
            db.scalars(select(Domain).order_by(Domain.name)),
        )
        return [[each.over_quota_weight for each in projects], [each.over_quota_weight for each in domains]]


def numbers(connection: Connection) -> list[list[int]]:
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
        connection.execute(text(f"UPDATE {name} SET claims_spare = false WHERE over_quota_weight = 0"))
    assert weights(connection) == [[0, 3], [0, 2]]
    assert numbers(connection) == [[0, 3], [0, 2]], "an earlier release reads what it knows"
    command.downgrade(config, OLD)
    assert numbers(connection) == [[0, 3], [0, 2]]


async def test_no_site_shares_otherwise_after_the_step(empty_database_url: str) -> None:
    await try_step(empty_database_url, there_and_back)
