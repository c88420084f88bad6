"""What the audit log costs: one JSON line.

`python -m tests.bench.audit` runs a PostgreSQL of its own whose commits wait for the disk, and exits with 1 where a
figure misses its aim:

- `overhead_percent`: what a change takes longer with the log than the one beside it without, in the median of pairs. A
  change is a whole request as the edge passes it on: over a socket to an API that runs as it does on a site, with its
  reconcilers, and to the disk. One API keeps a log, the other none. Changes are far enough apart for the leader to have
  written the last one's line: where they follow each other at once, that work is in the time of the next one, too.
  `overhead_from` and `overhead_to` are what it lies between with 95 % certainty: on a busy machine single pairs differ
  by far more than the aim, so pairs go on until these are on one side of it, or there are `--most`.
- `change_cpu_ms`, `plain_change_cpu_ms`: the same change in time of a core that the API's process has in it, which does
  not grow while others have the cores.
- `appended_per_s`: entries that the leader brings from the database into the file, which is on the disk (`fsync`)
  before they leave the database.
- `verified_mb_per_s`: how fast the file is verified.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
CERTAIN = 1.96
"""Standard deviations on both sides within which 95 % of a normal distribution are."""


@dataclass(frozen=True)
class Api:
    """An API that is served: the folder of its socket and its process."""

    home: Path
    pid: int

    def cpu_ms(self) -> float:
        """Return the time of a core that its main thread has had, in which all requests are answered."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e6


@dataclass(frozen=True)
class Change:
    """What a change took, in milliseconds: of time, and of a core in the API's process."""

    ms: float
    cpu_ms: float


async def change(client: httpx.AsyncClient, api: Api, number: int) -> Change:
    """Change a project as an administrator does."""
    cpu_ms, began = api.cpu_ms(), time.perf_counter()
    (await client.patch(f"{V1}/projects/vision", json={"description": f"Seeing {number}"})).raise_for_status()
    return Change((time.perf_counter() - began) * 1000, api.cpu_ms() - cpu_ms)


@contextmanager
def served(server: Path, home: Path, **settings: str | Path) -> Iterator[Api]:
    """Serve an API as a site does, in a process of its own, with a database of its own."""
    home.mkdir()
    authority = make_authority(home)
    with api_process(new_database(server), home, authority, changes_per_hour="1000000000", **settings) as pid:
        yield Api(home, pid)


async def overhead(audited: Api, plain: Api, changes: int, most: int) -> dict[str, float]:
    """Return the median change with the log and without it, and what a change takes longer than its neighbour.

    Neighbours have the same machine: on a busy one the medians of all move by more than what is looked for.
    """
    apis = {True: audited, False: plain}
    async with administrator(audited.home / "api.sock") as on, administrator(plain.home / "api.sock") as off:
        clients = {True: on, False: off}
        for client in clients.values():
            body = {"name": "vision", "quota_milli": 0, "period": {"ends_at": None}}
            (await client.post(f"{V1}/projects", json=body)).raise_for_status()
        took: list[dict[bool, Change]] = []
        for number in range(most + WARM):
            pair = {}
            # neither is always the first
            for is_on in (True, False) if number % 2 else (False, True):
                pair[is_on] = await change(clients[is_on], apis[is_on], number)
                # what a change leaves to be done afterwards, in the leader, is not in its neighbour's time
                await asyncio.sleep(REST_S)
            if number >= WARM:
                took.append(pair)
            if len(took) >= changes and is_decided(longer(took), AIMS["overhead_percent"]):
                break
    lowest, percent, highest = longer(took)
    return {
        "changes": len(took),
        "change_ms": round(statistics.median(pair[True].ms for pair in took), 3),
        "plain_change_ms": round(statistics.median(pair[False].ms for pair in took), 3),
        "change_cpu_ms": round(statistics.median(pair[True].cpu_ms for pair in took), 3),
        "plain_change_cpu_ms": round(statistics.median(pair[False].cpu_ms for pair in took), 3),
        "overhead_from": round(lowest, 1),
        "overhead_percent": round(percent, 1),
        "overhead_to": round(highest, 1),
    }


def longer(took: Sequence[dict[bool, Change]]) -> tuple[float, float, float]:
    """Return the median of what a change takes longer than its neighbour, in percent, between its limits."""
    percent = sorted((pair[True].ms / pair[False].ms - 1) * 100 for pair in took)
    # of n values those are below the true median that n throws of a coin let be, whatever their distribution
    middle, aside = len(percent) / 2, CERTAIN * math.sqrt(len(percent)) / 2
    lowest = percent[max(0, math.floor(middle - aside))]
    return lowest, statistics.median(percent), percent[min(len(percent) - 1, math.ceil(middle + aside))]


def is_decided(found: tuple[float, float, float], aim: float) -> bool:
    """Return whether more pairs would hardly say anything else about the aim."""
    lowest, _, highest = found
    return highest <= aim or lowest > aim


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
    parser.add_argument("--changes", type=int, default=300, help="pairs, at least")
    parser.add_argument("--most", type=int, default=1200, help="pairs, where fewer do not decide")
    parser.add_argument("--entries", type=int, default=50_000)
    arguments = parser.parse_args()
    with postgresql.running_server(DURABLE) as folder, tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        home = Path(name)
        kept = _log_in(home / "kept")
        with served(folder, home / "audited", **kept) as audited, served(folder, home / "plain") as plain:
            figures = asyncio.run(overhead(audited, plain, arguments.changes, arguments.most))
        database = InstalledDatabase(folder)
        figures |= asyncio.run(written(database.fresh(), home / "written", arguments.entries))
        database.close()
    print(json.dumps({"bench": "audit", "durability": "fsync of the file, then of the commit, each batch", **figures}))
    missed = [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
