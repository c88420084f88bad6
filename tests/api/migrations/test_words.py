"""The step to the words of the field keeps all rows, on the way there and on the way back."""

from __future__ import annotations

from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, MetaData, Table, select

from api.migrations import schema
from tests.api.migrations.steps import try_step
from tests.api.migrations.test_upgrade import MOMENT, NODE, PROJECT, ROWS, RUNS, USER

pytestmark = pytest.mark.anyio

OLD, NEW = "0008", "0009"
DENIED = {"session_id": RUNS, "rank": 0, "call": "mkdir", "process": "sh", "effect": "EPERM", "pid": 7, "count": 3}
BEFORE: dict[str, dict[str, Any]] = {
    "images": {
        "id": PROJECT,
        "name": "python",
        "tag": "1",
        "reference": "r",
        "created_at": MOMENT,
        "scope": "projects",
    },
    "memberships": {"project_id": PROJECT, "user_id": USER, "part": "manager"},
    "sessions": {
        **{name: value for name, value in ROWS["sessions"][0].items() if name not in ("interactive", "node_id")},
        "kind": "training",
        "preemptible": True,
        "since": MOMENT,
        "sandbox_rules": [],
        "size": 3,
        "models": ["V100"],
        "ending": "PENDING",
    },
    "containers": {"session_id": RUNS, "rank": 0, "node_id": NODE, "error": "", "ports": {}},
    "grants": {"session_id": RUNS, "rank": 0, "index": 1, "uuid": "GPU-1", "milli": 500},
    "denials": {**DENIED, "first_at": MOMENT, "last_at": MOMENT},
}
WORDS = {
    "scope": "visibility",
    "part": "role",
    "size": "replicas",
    "models": "gpu_models",
    "ending": "final_state",
    "grants": "gpu_shares",
    "denials": "denied_calls",
}


def rows(connection: Connection, words: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What was written, as it is called by then."""
    known, found = MetaData(), {}
    for name, row in BEFORE.items():
        table = Table(words.get(name, name), known, autoload_with=connection)
        [stored] = connection.execute(select(table)).mappings().all()
        found[name] = {key: stored[words.get(key, key)] for key in row}
    return found


def there_and_back(connection: Connection) -> None:
    config, known = schema.config(connection), MetaData()
    command.upgrade(config, OLD)
    for name in ("users", "projects", "nodes"):
        connection.execute(Table(name, known, autoload_with=connection).insert(), ROWS[name])
    for name, row in BEFORE.items():
        connection.execute(Table(name, known, autoload_with=connection).insert(), row)
    command.upgrade(config, NEW)
    assert rows(connection, WORDS) == BEFORE
    command.downgrade(config, OLD)
    assert rows(connection, {}) == BEFORE


async def test_rows_are_there_under_both_names(empty_database_url: str) -> None:
    await try_step(empty_database_url, there_and_back)
