"""What the audit log costs: one JSON line.

`python -m tests.bench.audit` runs a PostgreSQL of its own whose commits wait for the disk, and exits with 1 where a
figure misses its aim:

- `overhead_percent`: what a change takes longer with the log than the one beside it without, in the median of pairs. A
  change is a whole request as the edge passes it on: over a socket to an API that runs as it does on a site, with its
  reconcilers, and to the disk. One API keeps a log, the other none. Changes are far enough apart for the leader to have
  written the last one's line: where they follow each other at once, that work is in the time of the next one, too.
- `appended_per_s`: entries that the leader brings from the database into the file, which is on the disk (`fsync`)
  before they leave the database.
- `verified_mb_per_s`: how fast the file is verified.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import insert

from api.control.audit_writer import AuditWriter
from api.database import Database
from api.resources.audit import service
from api.tables.audit import AuditEvent
from tests import postgresql
from tests.api.cluster import V1, Cluster, running_cluster
from tests.bench.control import administrator, api_process
from tests.installed import InstalledDatabase
from tests.integration.agent.conftest import make_authority
from tests.postgresql import new_database

AIMS = {"overhead_percent": 5}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
WARM = 50
REST_S = 0.25


async def change(client: httpx.AsyncClient, number: int) -> float:
    """Change a project as an administrator does; return how long that took, in milliseconds."""
    began = time.perf_counter()
    (await client.patch(f"{V1}/projects/vision", json={"description": f"Seeing {number}"})).raise_for_status()
    return (time.perf_counter() - began) * 1000


@contextmanager
def served(server: Path, home: Path, **settings: str | Path) -> Iterator[Path]:
    """Serve an API as a site does, in a process of its own, with a database of its own; give its socket."""
    home.mkdir()
    authority = make_authority(home)
    with api_process(new_database(server), home, authority, changes_per_hour="1000000000", **settings):
        yield home / "api.sock"


async def overhead(audited: Path, plain: Path, changes: int) -> dict[str, float]:
    """Return the median change with the log and without it, and what a change takes longer than its neighbour.

    Neighbours have the same machine: on a busy one the medians of all move by more than what is looked for.
    """
    async with administrator(audited) as on, administrator(plain) as off:
        clients = {True: on, False: off}
        for client in clients.values():
            body = {"name": "vision", "quota_milli": 0, "period": {"ends_at": None}}
            (await client.post(f"{V1}/projects", json=body)).raise_for_status()
        took: list[dict[bool, float]] = []
        for number in range(changes + WARM):
            pair = {}
            # neither is always the first
            for is_on in (True, False) if number % 2 else (False, True):
                pair[is_on] = await change(clients[is_on], number)
                # what a change leaves to be done afterwards, in the leader, is not in its neighbour's time
                await asyncio.sleep(REST_S)
            took.append(pair)
    with_log, without = (statistics.median(pair[is_on] for pair in took[WARM:]) for is_on in (True, False))
    longer = statistics.median(pair[True] / pair[False] for pair in took[WARM:]) - 1
    return {
        "change_ms": round(with_log, 3),
        "plain_change_ms": round(without, 3),
        "overhead_percent": round(longer * 100, 1),
    }


async def fill(database: Database, entry: dict[str, Any], entries: int) -> None:
    """Put entries where those wait that are not in the files."""
    async with database.transaction() as db:
        for first in range(0, entries, 1000):
            rows = [{"id": f"bench-{number}", "entry": entry} for number in range(first, min(first + 1000, entries))]
            await db.execute(insert(AuditEvent), rows)


async def append(cluster: Cluster, entries: int) -> dict[str, float]:
    """Return how fast the leader writes entries, and how fast they are verified."""
    writer = AuditWriter(cluster.database, cluster.settings, cluster.clock)
    await writer.work()
    files = service.log_of(cluster.settings)
    assert files
    entry = next(files.after(0)).entry
    assert entry
    kept = {key: value for key, value in entry.items() if key not in ("seq", "previous", "day", "id", "mac", "changes")}
    await fill(cluster.database, kept, entries)
    began = time.perf_counter()
    await writer.work()
    appended_s = time.perf_counter() - began
    size = sum(day.size for day in files.days())
    began = time.perf_counter()
    async with cluster.database.reading() as db:
        done = await service.verify(db, files, {})
    verified_s = time.perf_counter() - began
    assert done.ok, done.findings
    assert done.lines >= entries
    return {
        "entries": entries,
        "log_mb": round(size / 1e6, 1),
        "appended_per_s": round(entries / appended_s),
        "verified_mb_per_s": round(size / 1e6 / verified_s, 1),
    }


async def written(url: str, folder: Path, entries: int) -> dict[str, float]:
    """Return how fast the files are written and verified."""
    async with running_cluster(url, **_log_in(folder)) as cluster:
        await cluster.add_project("vision")
        return await append(cluster, entries)


def _log_in(folder: Path) -> dict[str, Path]:
    """Return the settings of an API that keeps a log in a folder."""
    (folder / "log").mkdir(parents=True)
    (folder / "key").write_text("a key of this bench")
    return {"audit_folder": folder / "log", "audit_key": folder / "key"}


def main() -> None:
    """Measure, print one line, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--changes", type=int, default=300)
    parser.add_argument("--entries", type=int, default=50_000)
    arguments = parser.parse_args()
    with postgresql.running_server(DURABLE) as folder, tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        home = Path(name)
        kept = _log_in(home / "kept")
        with served(folder, home / "audited", **kept) as audited, served(folder, home / "plain") as plain:
            figures = asyncio.run(overhead(audited, plain, arguments.changes))
        database = InstalledDatabase(folder)
        figures |= asyncio.run(written(database.fresh(), home / "written", arguments.entries))
        database.close()
    print(json.dumps({"bench": "audit", "durability": "fsync of the file, then of the commit, each batch", **figures}))
    missed = [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
