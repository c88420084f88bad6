"""What a site has had since the first tables is there after the upgrade, in the new words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from alembic import command
from sqlalchemy import Connection, MetaData, Table, select

from api.database import Database
from api.migrations import schema
from api.tables.projects import Membership, ProjectRole
from api.tables.sessions import Kind, Session, SessionLog, State
from api.tables.users import User
from common.protocol import ContainerStatus

pytestmark = pytest.mark.anyio

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
USER, PROJECT, NODE, RUNS, WAITS = (UUID(int=number) for number in range(1, 6))
SESSION = {
    "project_id": PROJECT,
    "user_id": USER,
    "user_name": "ada",
    "image": "python:3.11",
    "reference": "registry/python:3.11",
    "args": [],
    "environment": {},
    "mounts": [],
    "reason": "",
    "revision": 3,
    "created_at": MOMENT,
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "users": [{"id": USER, "name": "ada", "role": "admin", "password_hash": "x", "created_at": MOMENT}],
    "projects": [
        {"id": PROJECT, "name": "team-a", "description": "", "quota_milli": 4000, "created_at": MOMENT},
    ],
    "memberships": [{"project_id": PROJECT, "user_id": USER}],
    "nodes": [
        {
            "id": NODE,
            "name": "worker1",
            "address": "192.0.2.1",
            "port": 6001,
            "state": "ready",
            "agent_version": "",
            "engine_version": "",
            "os": "",
            "enforcement": "none",
            "cpu_milli": 1000,
            "memory_mib": 1024,
            "created_at": MOMENT,
        }
    ],
    "sessions": [
        {**SESSION, "id": RUNS, "name": "runs", "interactive": True, "gpu_milli": 1500, "state": "RUNNING"}
        | {"node_id": NODE, "started_at": MOMENT},
        {**SESSION, "id": WAITS, "name": "waits", "interactive": False, "gpu_milli": 500, "state": "PENDING"}
        | {"node_id": None, "started_at": None},
    ],
    "grants": [
        {"session_id": RUNS, "index": 0, "uuid": "GPU-0", "milli": 1000},
        {"session_id": RUNS, "index": 1, "uuid": "GPU-1", "milli": 500},
    ],
    "session_logs": [{"session_id": RUNS, "tail": b"a line"}],
}


def first_tables(connection: Connection) -> None:
    """Make the first tables and fill them."""
    command.upgrade(schema.config(connection), "0001")
    known = MetaData()
    for name, rows in ROWS.items():
        table = Table(name, known, autoload_with=connection)
        connection.execute(table.insert(), rows)


async def test_nothing_is_lost_by_the_upgrade(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    try:
        async with database.engine.begin() as connection:
            await connection.run_sync(first_tables)
        assert await schema.migrate(database)
        async with database.reading() as db:
            ada = (await db.scalars(select(User))).one()
            found = (await db.execute(select(Membership.user_id, Membership.role))).all()
            assert found == [(ada.id, ProjectRole.MEMBER)]
            sessions = {session.name: session for session in await db.scalars(select(Session))}
            tail = await db.scalar(select(SessionLog.tail))
    finally:
        await database.close()
    runs, waits = sessions["runs"], sessions["waits"]
    assert (runs.kind, runs.preemptible, runs.state, runs.replicas) == (Kind.INTERACTIVE, False, State.RUNNING, 1)
    assert [(item.rank, item.node.name, item.status) for item in runs.containers] == [
        (0, "worker1", ContainerStatus.RUNNING)
    ]
    assert [(share.index, share.uuid, share.milli) for share in runs.containers[0].gpu_shares] == [
        (0, "GPU-0", 1000),
        (1, "GPU-1", 500),
    ]
    assert (waits.kind, waits.preemptible, waits.containers) == (Kind.TRAINING, True, [])
    assert runs.since == MOMENT
    assert tail == b"a line"
