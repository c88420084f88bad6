"""Checks of the database: whether it has connections left, and whether its log comes into its archive in time."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text

from api.database import Database
from common.checks import Check, CheckState
from common.health import graded

CONNECTIONS = (80, 95)
"""Percent of the database's connections in use that warn and fail."""
LATE, FAILS_AFTER = timedelta(minutes=2), timedelta(minutes=15)
"""So long a segment may wait beyond its time."""
SEEN = """SELECT (SELECT count(*) FROM pg_stat_activity) AS used, current_setting('max_connections')::int AS most,
current_setting('archive_mode') = 'on' AS archives,
extract(epoch FROM current_setting('archive_timeout')::interval) AS timeout_s,
coalesce(last_archived_time, stats_reset) AS since, coalesce(last_archived_wal, '') AS last,
pg_walfile_name(greatest(pg_current_wal_lsn(), '0/3000000') - 33554432) AS whole,
coalesce(last_failed_time > last_archived_time, failed_count > 0) AS failing
FROM pg_stat_archiver"""


async def look(database: Database, at: datetime) -> list[Check]:
    """Return the checks; that of the archive only where the database has one of its log."""
    began = time.monotonic()
    async with database.reading() as db:
        seen = (await db.execute(text(SEEN))).one()
    took_ms = (time.monotonic() - began) * 1000
    return [_connections(seen, took_ms), *([_archive(seen, at)] if seen.archives else [])]


def _connections(seen: Row[Any], took_ms: float) -> Check:
    state = graded(100 * seen.used / seen.most, *CONNECTIONS)
    said = f"{seen.used} of {seen.most} connections are in use"
    hint = f"look at pg_stat_activity; the last answer took {took_ms:.0f} ms" if state is not CheckState.OK else ""
    # no ladder makes room; a database that is gone is seen by the controller
    return Check("database", "database answers", state, said, hint)


def _archive(seen: Row[Any], at: datetime) -> Check:
    # two whole segments that are not there wait; one with nothing in it is not archived, whatever its age
    waits = at - seen.since if seen.failing or seen.last < seen.whole else timedelta()
    late = waits - timedelta(seconds=float(seen.timeout_s))
    state = CheckState.FAIL if late >= FAILS_AFTER else CheckState.WARN if late >= LATE else CheckState.OK
    said = f"{seen.last or 'nothing'} was archived last, at {seen.since:%Y-%m-%d %H:%M:%S} UTC"
    hint = "look at PostgreSQL's log and at `backup.wal_to` on the master; its disk fills meanwhile"
    about = "database.archive", "log of the database is archived in time"
    return Check(*about, state, said, hint if state is not CheckState.OK else "")
