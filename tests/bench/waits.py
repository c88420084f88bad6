"""What reports of a year cost, of waits and over time: 1,000,000 spans of 50 projects and 500 users; one JSON line.

`python -m tests.bench.waits` runs a PostgreSQL of its own, and exits with 1 where a figure misses its aim. Each is the
median of several answers of the application in this process, in milliseconds:

- `by_project_ms`, `by_user_ms`: of `GET /accounting/waits` for 365 days.
- `month_ms`: of the same for 30 days, by project.
- `timeline_by_project_ms`, `timeline_by_user_ms`: of `GET /accounting/timeline` for 365 days.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from datetime import timedelta

import psycopg

from api.clock import now
from tests import postgresql
from tests.api.cluster import V1, ok, running_cluster
from tests.bench.overview import median_ms
from tests.installed import InstalledDatabase

AIMS = {
    "by_project_ms": 1000.0,
    "by_user_ms": 1000.0,
    "month_ms": 1000.0,
    "timeline_by_project_ms": 2500.0,
    "timeline_by_user_ms": 2500.0,
}

_FILL = """
INSERT INTO spans (
    id, session_id, session_name, user_id, user_name, project_id, project_name, gpu_milli, started_at, ended_at,
    waited_s
)
SELECT gen_random_uuid(), gen_random_uuid(), 'train', md5('u' || n %% 500)::uuid, 'user' || n %% 500,
    md5('p' || n %% 50)::uuid, 'project' || n %% 50, 1000, at, at + interval '1 hour', exp(12 * random())
FROM (SELECT n, now() - n * interval '365 days' / %(spans)s AS at FROM generate_series(1, %(spans)s) n) begun
"""


def fill(url: str, spans: int) -> None:
    """Write spans of a year, before which was waited for a second to two days."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_FILL, {"spans": spans})
        connection.execute("VACUUM ANALYZE spans")


async def measure(url: str, spans: int) -> dict[str, float]:
    """Return the figures."""
    async with running_cluster(url) as cluster:
        plain = cluster.database.engine.url.set(drivername="postgresql")
        await asyncio.to_thread(fill, plain.render_as_string(hide_password=False), spans)

        async def report(by: str, days: int) -> None:
            query = {"by": by, "starts_at": (now() - timedelta(days=days)).isoformat()}
            assert (await ok(cluster.admin.get(f"{V1}/accounting/waits", params=query)))["total"]["count"]

        async def timeline(by: str) -> None:
            query = {"by": by, "starts_at": (now() - timedelta(days=365)).isoformat()}
            assert (await ok(cluster.admin.get(f"{V1}/accounting/timeline", params=query)))["series"]

        return {
            "by_project_ms": await median_ms(lambda: report("project", 365)),
            "by_user_ms": await median_ms(lambda: report("user", 365)),
            "month_ms": await median_ms(lambda: report("project", 30)),
            "timeline_by_project_ms": await median_ms(lambda: timeline("project")),
            "timeline_by_user_ms": await median_ms(lambda: timeline("user")),
        }


def main() -> None:
    """Measure, print one line, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--spans", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with postgresql.running_server() as folder:
        database = InstalledDatabase(folder)
        figures = asyncio.run(measure(database.fresh(), arguments.spans))
        database.close()
    print(json.dumps({"spans": arguments.spans, **figures}))
    if missed := [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
