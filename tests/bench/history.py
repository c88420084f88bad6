"""What a past costs: how many rows are read on a site with many ended sessions: one JSON line.

`python -m tests.bench.history --sessions N` runs a PostgreSQL of its own with N ended sessions, and exits with 1 where
a figure misses its aim. Rows are counted by EXPLAIN and not timed, so any machine will do:

- `get_rows`: read for `GET /sessions/NAME` of a name that a fifth of them had.
- `nodes_rows`: read for `GET /nodes`.
- `nodes_one_rows`: read for `GET /nodes/NAME`.
- `few_rows`, `user_rows`: read for the first page of a project and of a user that have none of them.
- `all_rows`: read for the last page of 100 of a walk over all.
- `accounting_statements`, `accounting_rows`: sent for a report of all of them, and rows that come back for it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from sqlalchemy import event, select

from api.lists import session_pages
from api.tables.sessions import Session
from tests import history, postgresql
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.installed import InstalledDatabase

AIMS = {
    "get_rows": 50,
    "nodes_rows": 100,
    "nodes_one_rows": 100,
    "few_rows": 50,
    "user_rows": 50,
    "all_rows": 1000,
    "accounting_statements": 12,
    "accounting_rows": 20,
}


async def measure(cluster: Cluster, sessions: int) -> dict[str, int]:
    """Return the figures."""
    await cluster.add_node()
    await cluster.add_image()
    for project in ("team-a", "team-b", "team-c"):
        await cluster.add_project(project)
    await asyncio.to_thread(history.fill, cluster.database, sessions)
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "get_rows": (f"{V1}/sessions/train1", {"project": "team-a"}),
        "nodes_rows": (f"{V1}/nodes", {}),
        "nodes_one_rows": (f"{V1}/nodes/worker1", {}),
        "few_rows": (f"{V1}/sessions", {"project": "team-b"}),
        "user_rows": (f"{V1}/sessions", {"user": "bobby"}),
        "all_rows": (f"{V1}/sessions", {"all": True, "after": await _before_last(cluster, 100)}),
    }
    figures = {}
    for name, (path, params) in asked.items():
        with history.noted(cluster.database) as sent:
            await ok(cluster.admin.get(path, params=params))
        figures[name] = await asyncio.to_thread(history.rows_read, cluster.database, sent)
    fetched: list[int] = []
    engine = cluster.database.engine.sync_engine
    event.listen(engine, "after_cursor_execute", lambda _c, cursor, *_: fetched.append(max(cursor.rowcount, 0)))
    await ok(cluster.admin.get(f"{V1}/accounting"))
    return {**figures, "accounting_statements": len(fetched), "accounting_rows": sum(fetched)}


async def _before_last(cluster: Cluster, count: int) -> str:
    """Return the cursor behind which so many sessions are left."""
    async with cluster.database.reading() as db:
        newest = select(Session.created_at, Session.id).order_by(Session.created_at.desc(), Session.id.desc())
        row = (await db.execute(newest.offset(count).limit(1))).one()
    return session_pages.cursor(row.created_at, row.id)


async def run(url: str, sessions: int) -> dict[str, int]:
    """Measure on a database."""
    async with running_cluster(url) as cluster:
        return await measure(cluster, sessions)


def main() -> None:
    """Measure, print one line, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=100_000)
    arguments = parser.parse_args()
    with postgresql.running_server() as folder:
        database = InstalledDatabase(folder)
        figures = asyncio.run(run(database.fresh(), arguments.sessions))
        database.close()
    print(json.dumps({"sessions": arguments.sessions, **figures}))
    if missed := [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
