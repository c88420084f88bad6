"""The step to ids of domains: what ran belongs to the domain of its name that was there, and not to one made since."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from alembic import command
from sqlalchemy import Connection, MetaData, Table, select

from api.migrations import schema
from tests.api.migrations.steps import try_step
from tests.api.migrations.test_upgrade import MOMENT, PROJECT, USER

pytestmark = pytest.mark.anyio

OLD, NEW = "0010", "0011"
SPANS = {"before": ("acme", -1), "since": ("acme", 1), "removed": ("globex", 1), "site": (None, 1)}
"""By session: the domain, and when it began, in hours after the domain acme was made."""


def rows(connection: Connection, name: str) -> list[dict[str, Any]]:
    table = Table(name, MetaData(), autoload_with=connection)
    return [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()]


def there_and_back(connection: Connection) -> None:
    config, known = schema.config(connection), MetaData()
    command.upgrade(config, OLD)
    domains, spans = (Table(name, known, autoload_with=connection) for name in ("domains", "spans"))
    for name in ("acme", "initech"):
        connection.execute(domains.insert(), {"name": name, "description": "", "created_at": MOMENT})
    for number, (session, (domain, hours)) in enumerate(SPANS.items(), start=1):
        span = {"id": UUID(int=number), "session_id": UUID(int=number), "session_name": session, "domain": domain}
        whose = {"user_id": USER, "user_name": "ada", "project_id": PROJECT, "project_name": "team-a"}
        began = {"gpu_milli": 1000, "started_at": MOMENT + timedelta(hours=hours)}
        connection.execute(spans.insert(), span | whose | began)
    before = rows(connection, "domains"), rows(connection, "spans")
    command.upgrade(config, NEW)
    ids = {row["name"]: row["id"] for row in rows(connection, "domains")}
    assert len(set(ids.values()) - {None}) == len(ids)
    assert {row["session_name"]: row["domain_id"] for row in rows(connection, "spans")} == {
        "before": None,
        "since": ids["acme"],
        "removed": None,
        "site": None,
    }
    command.downgrade(config, OLD)
    assert (rows(connection, "domains"), rows(connection, "spans")) == before


async def test_what_ran_belongs_to_the_domain_that_was_there(empty_database_url: str) -> None:
    await try_step(empty_database_url, there_and_back)
