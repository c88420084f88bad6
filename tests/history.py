"""A site with a past: what has ended, written straight into the database, and how many rows a request reads of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import event

from api.database import Database

Sent = list[tuple[str, Mapping[str, Any]]]
"""Statements with their values."""

_FILL = """
INSERT INTO sessions (
    id, name, project_id, user_id, user_name, image, reference, kind, preemptible, gpu_milli, args, environment, mounts,
    gpu_models, sandbox_rules, state, since, reason, revision, created_at, started_at, finished_at
)
SELECT gen_random_uuid(), 'train' || n % 5, p.ids[CASE WHEN n % 5 = 4 THEN cardinality(p.ids) ELSE 1 END],
    u.id, u.name, 'python:3.11', 'r/python:3.11', 'training', true, 1000, '[]', '{{}}', '[]', '[]', '[]',
    CASE WHEN n % 19 = 0 THEN 'FAILED' ELSE 'TERMINATED' END, at, '', 0, at, at, at + interval '1 hour'
FROM (SELECT n, now() - interval '25 days' + n * interval '20 days' / {count} AS at FROM generate_series(1, {count}) n)
    AS ended, (SELECT array_agg(id ORDER BY created_at) AS ids FROM projects) p, (SELECT id, name FROM users LIMIT 1)
    u;
INSERT INTO containers (session_id, rank, node_id, error, ports)
SELECT s.id, 0, n.id, '', '{{}}' FROM sessions s, (SELECT id FROM nodes LIMIT 1) n WHERE s.finished_at IS NOT NULL;
INSERT INTO gpu_shares (session_id, rank, index, uuid, milli)
SELECT id, 0, 0, 'GPU-worker1-0', 1000 FROM sessions WHERE finished_at IS NOT NULL;
INSERT INTO spans (
    id, session_id, session_name, user_id, user_name, project_id, project_name, gpu_milli, started_at, ended_at
)
SELECT gen_random_uuid(), s.id, s.name, s.user_id, s.user_name, s.project_id, p.name, 1000, s.started_at, s.finished_at
FROM sessions s JOIN projects p ON p.id = s.project_id WHERE s.finished_at IS NOT NULL;
ANALYZE;
"""


def fill(database: Database, count: int) -> None:
    """Let so many sessions of five names have run and ended, one in nineteen in vain, on one node, for one user.

    A fifth are of the last project, the others of the first.
    """
    with _connect(database) as connection:
        for statement in _FILL.format(count=count).split(";\n"):
            if statement.strip():
                connection.execute(statement)


@contextmanager
def noted(database: Database) -> Iterator[Sent]:
    """Give the statements that are sent meanwhile."""
    sent: Sent = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        sent.append((statement, dict(values or {})))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(database.engine.sync_engine, "before_cursor_execute", note)


def rows_read(database: Database, sent: Sent) -> int:
    """Return how many rows and index entries PostgreSQL looks at for what was asked of it."""
    total = 0
    with _connect(database) as connection:
        for statement, values in sent:
            if not statement.lstrip().upper().startswith(("SELECT", "WITH")):
                continue
            row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values).fetchone()
            assert row is not None
            total += _scanned((row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"])
    return total


def _scanned(plan: Mapping[str, Any]) -> int:
    own = 0
    if "Scan" in plan["Node Type"] and "Relation Name" in plan:
        left_out = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        own = (plan["Actual Rows"] + left_out) * plan["Actual Loops"]
    return int(own) + sum(_scanned(part) for part in plan.get("Plans", ()))


def _connect(database: Database) -> psycopg.Connection:
    url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(url, autocommit=True)
