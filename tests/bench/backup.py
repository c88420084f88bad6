"""What a backup of a large database takes: one JSON line.

`python -m tests.bench.backup --rows N` runs a PostgreSQL of its own with the tables of this version and N rows, most of
them of ended sessions, and exits with 1 where a figure misses its aim, in seconds of a quiet machine with two cores:

- `dump_s`: one snapshot counted, dumped and compressed.
- `restore_s`: the dump loaded into an empty database, its indexes made, its rows counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from sqlalchemy import make_url

from tests import history, postgresql
from tests.api.cluster import running_cluster
from tests.installed import InstalledDatabase
from tests.role_modules import role_module

AIMS = {"dump_s": 30, "restore_s": 120}


async def fill(url: str, rows: int) -> None:
    """Fill a database with ended sessions, each of which has four rows, until it has so many."""
    async with running_cluster(url) as cluster:
        await cluster.add_node()
        await cluster.add_image()
        for project in ("team-a", "team-b", "team-c"):
            await cluster.add_project(project)
        await asyncio.to_thread(history.fill, cluster.database, rows // 4)


def measure(folder: Path, url: str, rows: int) -> dict[str, float]:
    """Return the figures."""
    asyncio.run(fill(url, rows))
    backup = role_module("database_backup/library/database_backup.py")
    server = backup.Server((), {"PGHOST": str(folder), "PGUSER": "tests"})
    name = str(make_url(url).database)
    with tempfile.TemporaryDirectory() as work:
        options = {"action": "make", "database": name, "owner": "tests", "beside": f"{name}_scratch", "left_out": []}
        done = backup.act({**options, "dump": f"{work}/dump.sql.gz"}, server)
    seconds = done["seconds"]
    return {
        "rows": sum(done["tables"].values()),
        "plain_mb": round(done["plain_size"] / 1e6, 1),
        "packed_mb": round(done["size"] / 1e6, 1),
        "dump_s": seconds["dump"],
        "restore_s": seconds["restore"],
    }


def main() -> None:
    """Measure, print one line, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with postgresql.running_server() as folder:
        database = InstalledDatabase(folder)
        url = database.fresh()
        figures = measure(folder, url, arguments.rows)
        database.close()
    print(json.dumps({"bench": "backup", **figures}))
    missed = [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]
    if figures["rows"] < arguments.rows:
        missed.append(f"only {figures['rows']} rows")
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
