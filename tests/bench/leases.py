"""Leases of Slurm: 10,000 of them reconciled, and submit to RUNNING on a small Slurm beside `direct`. One JSON line.

- `reconcile_ms`: what the leader does each second (`LeaseKeeper.work`), on PostgreSQL with as many sessions that run;
  what Slurm would list comes from a file, by a process. `first_ms` is the first time, when all nodes are written, and
  `reconcile_cpu_ms` what this process computes.
- `direct_…` and `slurm_…`: submit to RUNNING as the database says it, one after the other, with the loops that
  production runs, a real controller with two nodes, and containers that start at once.

Exits 1 where an aim is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import select, text

from api.clock import Clock
from api.control.leases import LeaseKeeper
from api.database import Database
from api.engine.slurm import jobs, nodes
from api.engine.slurm.launcher import SlurmLauncher
from api.migrations import schema
from api.tables.nodes import Node
from api.tables.sessions import Session
from common import process
from common.lease_protocol import Lease
from tests.api.cluster import V1, Cluster, SlowClock, ok, running_cluster
from tests.bench.scheduler_loop import fill
from tests.installed import InstalledDatabase
from tests.integration.slurm import Slurm, running_slurm
from tests.postgresql import new_database, running_server

AIMS = {"reconcile_ms": 2000.0, "first_ms": 2000.0, "slurm_p95_ms": 1500.0}
OWNER = UUID(int=1)
LOOKS = 9


class ListedLauncher(SlurmLauncher):
    """The launcher of production, whose commands find what they would say in files."""

    def __init__(self, listings: dict[str, Path]) -> None:
        """Know the file of each command."""
        super().__init__("penstock", own)
        self._listings = listings
        self.asked: list[str] = []

    async def _run(self, words: Sequence[str], stdin: str = "", accepted: Collection[int] = (0,)) -> str:
        self.asked.append(words[0])
        return await asyncio.to_thread(process.run, ["cat", self._listings[words[0]]])


class TrueClock(SlowClock):
    """The clock of production."""

    def monotonic(self) -> float:
        """Return seconds that pass by themselves."""
        return Clock.monotonic(self)


async def own() -> UUID:
    """Tell whose the jobs are."""
    return OWNER


def main() -> None:
    """Measure and print; the exit code says whether the aims are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=10_000)
    parser.add_argument("--starts", type=int, default=40, help="0: leases alone")
    options = parser.parse_args()
    with running_server() as folder, tempfile.TemporaryDirectory() as home:
        figures = asyncio.run(reconciled(new_database(folder), Path(home), options.leases))
    figures |= started(options.starts) if options.starts else {}
    missed = [name for name, most in AIMS.items() if figures.get(name, 0) > most]
    print(json.dumps({"leases": options.leases, "starts": options.starts, **figures, "aims": AIMS, "missed": missed}))
    sys.exit(1 if missed else 0)


async def reconciled(url: str, home: Path, count: int) -> dict[str, float]:
    """Return what it takes to compare so many leases with as many sessions."""
    database = Database(url)
    await schema.migrate(database)
    await fill(database, nodes=count // 8 + 1, sessions=count, projects=50)
    listings = {"squeue": home / "jobs", "sinfo": home / "nodes"}
    async with database.reading() as db:
        ids = [*await db.scalars(select(Session.id))]
        names = [*await db.scalars(select(Node.name))]
    lines = (f"{number}|RUNNING|None|{jobs.comment(Lease(id_, 0), OWNER)}\n" for number, id_ in enumerate(ids, 1))
    listings["squeue"].write_text("".join(lines))
    listings["sinfo"].write_text("".join(map(_line, names)))
    launcher = ListedLauncher(listings)
    keeper = LeaseKeeper(database, launcher, Clock())
    times, cpu = [], []
    for _ in range(LOOKS + 1):
        began, used = time.perf_counter(), time.process_time()
        await keeper.work()
        times.append((time.perf_counter() - began) * 1000)
        cpu.append((time.process_time() - used) * 1000)
    async with database.reading() as db:
        running = await db.scalar(text("SELECT count(*) FROM sessions WHERE state = 'RUNNING'"))
    assert (running, launcher.asked) == (count, ["squeue", "sinfo"] * (LOOKS + 1)), "no lease is lost or given back"
    await database.close()
    return {
        "first_ms": round(times[0], 1),
        "reconcile_ms": round(statistics.median(times[1:]), 1),
        "slowest_reconcile_ms": round(max(times[1:]), 1),
        "reconcile_cpu_ms": round(statistics.median(cpu[1:]), 1),
    }


def _line(name: str) -> str:
    """Return what Slurm lists of a node, by the widths of `nodes.COLUMNS`."""
    told = (name, "32/96/0/128", "131072", nodes.OPEN, "mixed", "none")
    widths = (int(column.rpartition(":")[2]) for column in nodes.COLUMNS.split(","))
    return "".join(f"{each:{width}}" for each, width in zip(told, widths, strict=True)) + "\n"


def started(count: int) -> dict[str, float]:
    """Return how long so many sessions take from their submission until they run, by both engines."""
    with running_server() as folder:
        installed = InstalledDatabase(folder)
        figures = asyncio.run(starts("direct", installed.fresh(), count))
        with running_slurm(("worker1", "worker2")) as slurm:
            return figures | asyncio.run(starts("slurm", installed.fresh(), count, slurm))


async def starts(name: str, url: str, count: int, slurm: Slurm | None = None) -> dict[str, float]:
    """Return p50 and p95 of one engine; each session ends before the next begins."""
    changes: dict[str, Any] = {}
    if slurm:
        changes = {"engine": "slurm", "slurm_conf": slurm.conf, "slurm_holder": slurm.holder}
    async with running_cluster(url, TrueClock(), **changes) as cluster:
        for worker in ("worker1", "worker2"):
            assert (await cluster.heartbeat(worker)).status_code == 200
        beside = [cluster.app.state.notices.run(), cluster.manager.run(), _report(cluster)]
        tasks = [asyncio.create_task(work) for work in beside]
        await cluster.add_image()
        await cluster.add_project("team-a", 8000)
        try:
            times = [await _start(cluster, f"s{number}") for number in range(count + 2)][2:]
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    cuts = statistics.quantiles(times, n=20, method="inclusive")
    return {f"{name}_p50_ms": round(statistics.median(times) * 1000), f"{name}_p95_ms": round(cuts[-1] * 1000)}


async def _report(cluster: Cluster) -> None:
    while True:
        for worker in ("worker1", "worker2"):
            await cluster.heartbeat(worker)
        await asyncio.sleep(2)


async def _start(cluster: Cluster, name: str) -> float:
    began = time.perf_counter()
    await cluster.submit(name)
    took = await _reached(cluster, name, "RUNNING") - began
    await ok(cluster.admin.delete(f"{V1}/sessions/{name}", params={"project": "team-a"}))
    await _reached(cluster, name, "TERMINATED")
    return took


async def _reached(cluster: Cluster, name: str, state: str) -> float:
    query = text("SELECT state FROM sessions WHERE name = :name")
    async with asyncio.timeout(60):
        while True:
            async with cluster.database.reading() as db:
                if await db.scalar(query, {"name": name}) == state:
                    return time.perf_counter()
            await asyncio.sleep(0.005)


if __name__ == "__main__":
    main()
