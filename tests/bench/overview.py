"""What the overview of a large site costs: 2,000 nodes with 8 GPUs each, by default; one JSON line.

`python -m tests.bench.overview` runs a PostgreSQL of its own, and exits with 1 where a figure misses its aim. Each is
the median of several, in milliseconds, asked of the application in this process:

- `overview_ms`: of `GET /overview`, as a program has it.
- `page_ms`: of the console's page.
- `unchanged_ms`: of a page that asks whether anything has changed.
- `idle_ms`: of `GET /overview` where it has to look again what is idle, which it does every 15 s; this has no aim.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import text

from api.endpoints.access import SEEN_HEADER
from api.lists.overview import IdleGpus
from tests import postgresql
from tests.api.cluster import V1, Cluster, ok, running_cluster, sign_in
from tests.installed import InstalledDatabase

AIMS = {"overview_ms": 200.0, "page_ms": 200.0, "unchanged_ms": 200.0}
GPUS = 8
PROJECTS = 100
REPEATS = 9

_FILL = """
INSERT INTO nodes (id, name, address, port, state, agent_version, engine_version, os, enforcement, missing_storages,
    cpu_milli, memory_mib, last_seen, created_at)
SELECT gen_random_uuid(), 'worker' || n, '192.0.2.1', 6001, 'ready', '', '', '', 'none', '{{}}', 64000, 1048576,
    now(), now() FROM generate_series(1, {nodes}) n;
INSERT INTO gpus (id, node_id, index, uuid, model, memory_mib, simulated)
SELECT gen_random_uuid(), nodes.id, i, 'GPU-' || nodes.name || '-' || i, 'NVIDIA H100', 81920, false
FROM nodes, generate_series(0, {gpus} - 1) i;
INSERT INTO projects (id, name, description, quota_milli, over_quota, starts_at, on_expiry, created_at)
SELECT gen_random_uuid(), 'project' || n, '', 1000 * {nodes} * {gpus} / {projects}, true, now(), 'stop', now()
FROM generate_series(1, {projects}) n;
INSERT INTO sessions (id, name, project_id, user_id, user_name, image, reference, kind, preemptible, gpu_milli,
    held_milli, args, environment, mounts, gpu_models, sandbox_rules, state, since, reason, revision, created_at,
    scheduled_at, started_at)
SELECT gpus.id, 's' || row_number() OVER (), p.ids[1 + (row_number() OVER ()) % {projects}], u.id, u.name,
    'python:3.11', 'r/python:3.11', 'training', true, 1000, 1000, '[]', '{{}}', '[]', '[]', '[]', 'RUNNING', now(), '',
    0, now() - interval '1 day', now() - interval '23 hours', now() - interval '23 hours'
FROM gpus, (SELECT array_agg(id) AS ids FROM projects) p, (SELECT id, name FROM users LIMIT 1) u WHERE gpus.index > 0;
INSERT INTO containers (session_id, rank, node_id, status, error, ports, started_at)
SELECT gpus.id, 0, node_id, 'running', '', '{{}}', sessions.started_at FROM gpus JOIN sessions ON sessions.id = gpus.id;
INSERT INTO gpu_shares (session_id, rank, index, uuid, milli)
SELECT gpus.id, 0, gpus.index, gpus.uuid, 1000 FROM gpus JOIN sessions ON sessions.id = gpus.id;
INSERT INTO sessions (id, name, project_id, user_id, user_name, image, reference, kind, preemptible, gpu_milli,
    args, environment, mounts, gpu_models, sandbox_rules, state, since, reason, revision, position, created_at)
SELECT gen_random_uuid(), 'w' || n, p.ids[1 + n % {projects}], u.id, u.name, 'python:3.11', 'r/python:3.11',
    'training', true, 1000, '[]', '{{}}', '[]', '[]', '[]', 'PENDING', now(), 'waits', 0, n, now()
FROM generate_series(1, 5000) n, (SELECT array_agg(id) AS ids FROM projects) p,
    (SELECT id, name FROM users LIMIT 1) u;
INSERT INTO gpu_samples (session_id, rank, uuid, at_s, memory_mib, busy_permille, processes)
SELECT session_id, 0, uuid, EXTRACT(epoch FROM now())::bigint - 15 * i, 2048, CASE WHEN index = 1 THEN 0 ELSE 900 END, 1
FROM generate_series(60, 1, -1) i, gpu_shares;
"""


async def fill(cluster: Cluster, nodes: int) -> None:
    """Write a site whose GPUs but one of each node are held, a seventh of these idle, with 5,000 sessions that wait."""
    async with cluster.database.transaction() as db:
        for statement in _FILL.format(nodes=nodes, gpus=GPUS, projects=PROJECTS).split(";\n"):
            if statement.strip():
                await db.execute(text(statement.replace("::", "\\:\\:")))
    async with cluster.database.engine.connect() as connection:
        await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text("VACUUM ANALYZE"))


async def median_ms(ask: Callable[[], Awaitable[Any]]) -> float:
    """Return how long an answer takes."""
    took = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        await ask()
        took.append(1000 * (time.perf_counter() - begun))
    return round(statistics.median(took), 1)


async def measure(url: str, nodes: int) -> dict[str, float]:
    """Return the figures."""
    async with running_cluster(url) as cluster, cluster.client(Accept="text/html") as browser:
        await sign_in(browser, "admin")
        await fill(cluster, nodes)

        async def overview() -> None:
            seen = await ok(cluster.admin.get(f"{V1}/overview"))
            assert (seen["node_count"], seen["idle_milli"]) == (nodes, 1000 * nodes)

        async def anew() -> None:
            cluster.app.state.idle_gpus = IdleGpus()
            await overview()

        async def page() -> str:
            answer = await browser.get("/overview")
            assert answer.status_code == 200
            return answer.text.partition('data-version="')[2].partition('"')[0]

        version = await page()

        async def unchanged() -> None:
            await browser.get("/overview", headers={"HX-Request": "true", SEEN_HEADER: version})

        return {
            "overview_ms": await median_ms(overview),
            "page_ms": await median_ms(page),
            "idle_ms": await median_ms(anew),
            "unchanged_ms": await median_ms(unchanged),
        }


def main() -> None:
    """Measure, print one line, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=2000)
    arguments = parser.parse_args()
    with postgresql.running_server() as folder:
        database = InstalledDatabase(folder)
        figures = asyncio.run(measure(database.fresh(), arguments.nodes))
        database.close()
    print(json.dumps({"nodes": arguments.nodes, **figures}))
    if missed := [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
