"""What the audit log costs: one JSON line.

`python -m tests.bench.audit` runs a PostgreSQL of its own whose commits wait for the disk, and exits with 1 where a
figure misses its aim:

- `overhead_percent`: what a change takes longer with the log than the one beside it without, in the median of pairs.
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
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from api.control.audit_writer import AuditWriter
from api.database import Database
from api.resources.audit import service
from api.settings import Settings
from api.tables.audit import AuditEvent
from tests import postgresql
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.installed import InstalledDatabase

AIMS = {"overhead_percent": 5}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
WARM = 50


async def change(cluster: Cluster, number: int) -> float:
    """Change a project as an administrator does; return how long that took."""
    began = time.perf_counter()
    await ok(cluster.admin.patch(f"{V1}/projects/vision", json={"description": f"Seeing {number}"}))
    return time.perf_counter() - began


async def overhead(cluster: Cluster, changes: int) -> dict[str, float]:
    """Return the median change with the log and without it, and what a change takes longer than its neighbour.

    Neighbours have the same machine: on a busy one the medians of all move by more than what is looked for.
    """
    audited: Settings = cluster.app.state.settings
    plain = audited.model_copy(update={"audit_folder": None, "audit_key": None})
    took: list[dict[bool, float]] = []
    for number in range(changes + WARM):
        # neither is always the first
        pair = {}
        for is_on in (True, False) if number % 2 else (False, True):
            cluster.app.state.settings = audited if is_on else plain
            pair[is_on] = await change(cluster, 2 * number + is_on)
        took.append(pair)
    cluster.app.state.settings = audited
    on, off = (statistics.median(pair[is_on] for pair in took[WARM:]) for is_on in (True, False))
    longer = statistics.median(pair[True] / pair[False] for pair in took[WARM:]) - 1
    return {
        "change_ms": round(on * 1000, 3),
        "plain_change_ms": round(off * 1000, 3),
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


async def measure(url: str, changes: int, entries: int) -> dict[str, float]:
    """Return the figures."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        (folder / "log").mkdir()
        (folder / "key").write_text("a key of this bench")
        kept = {"audit_folder": folder / "log", "audit_key": folder / "key"}
        async with running_cluster(url, changes_per_hour=10**9, **kept) as cluster:
            await cluster.add_project("vision")
            return await overhead(cluster, changes) | await append(cluster, entries)


def main() -> None:
    """Measure, print one line, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--entries", type=int, default=50_000)
    arguments = parser.parse_args()
    with postgresql.running_server(DURABLE) as folder:
        database = InstalledDatabase(folder)
        figures = asyncio.run(measure(database.fresh(), arguments.changes, arguments.entries))
        database.close()
    print(json.dumps({"bench": "audit", "durability": "fsync of the file, then of the commit, each batch", **figures}))
    missed = [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
