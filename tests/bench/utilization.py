"""What a report of a month costs with how busy GPUs were and what they cost: 10,000 sessions; one JSON line.

`python -m tests.bench.utilization` runs a PostgreSQL of its own, and exits with 1 where a figure misses its aim. Each
is the median of several answers of the application in this process, in milliseconds:

- `by_user_ms`, `by_project_ms`: of `GET /accounting` for 30 days, with prices.
- `site_ms`: of `GET /accounting/utilization` for the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from datetime import timedelta
from decimal import Decimal

import psycopg

from api.clock import now
from tests import postgresql
from tests.api.cluster import V1, ok, running_cluster
from tests.bench.overview import median_ms
from tests.installed import InstalledDatabase

AIMS = {"by_user_ms": 1000.0, "by_project_ms": 1000.0, "site_ms": 1000.0}

_FILL = """
INSERT INTO spans (
    id, session_id, session_name, user_id, user_name, project_id, project_name, gpu_milli, gpu_models, cpu_milli,
    memory_mib, started_at, ended_at
)
SELECT gen_random_uuid(), md5('s' || n)::uuid, 'train', md5('u' || n %% 500)::uuid, 'user' || n %% 500,
    md5('p' || n %% 50)::uuid, 'project' || n %% 50, 500 * (1 + n %% 16),
    jsonb_build_object('model' || n %% 3, 500 * (1 + n %% 16)), 8000, 65536, at, at + interval '10 hours'
FROM (SELECT n, now() - n * interval '30 days' / %(sessions)s AS at FROM generate_series(1, %(sessions)s) n) begun
"""
_BUSY = """
INSERT INTO busy_hours (session_id, hour, series, samples, busy_permille)
SELECT session_id, hour, 4, 960, 480000
FROM spans, generate_series(
    floor(extract(epoch FROM started_at) / 3600)::int, floor(extract(epoch FROM ended_at) / 3600)::int
) AS hour
"""


def fill(url: str, sessions: int) -> None:
    """Write a month of sessions that ran for ten hours, and how busy they were."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_FILL, {"sessions": sessions})
        connection.execute(_BUSY)
        connection.execute("VACUUM ANALYZE spans, busy_hours")


async def measure(url: str, sessions: int) -> dict[str, float]:
    """Return the figures."""
    prices = {"price_currency": "EUR", "price_gpu_hour": Decimal("2.5"), "price_gpu_hour_of": {"model1": Decimal(1)}}
    async with running_cluster(url, **prices) as cluster:
        plain = cluster.database.engine.url.set(drivername="postgresql")
        await asyncio.to_thread(fill, plain.render_as_string(hide_password=False), sessions)
        since = (now() - timedelta(days=30)).isoformat()

        async def report(by: str) -> None:
            found = await ok(cluster.admin.get(f"{V1}/accounting", params={"by": by, "starts_at": since}))
            assert found["total"]["busy_gpu_seconds"]
            assert found["total"]["cost"]

        async def site() -> None:
            found = await ok(cluster.admin.get(f"{V1}/accounting/utilization", params={"starts_at": since}))
            assert any(step["busy_milli"] for step in found["steps"])

        return {
            "by_user_ms": await median_ms(lambda: report("user")),
            "by_project_ms": await median_ms(lambda: report("project")),
            "site_ms": await median_ms(site),
        }


def main() -> None:
    """Measure, print one line, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=10_000)
    arguments = parser.parse_args()
    with postgresql.running_server() as folder:
        database = InstalledDatabase(folder)
        figures = asyncio.run(measure(database.fresh(), arguments.sessions))
        database.close()
    print(json.dumps({"sessions": arguments.sessions, **figures}))
    if missed := [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
