"""Check that the log of the database comes into its archive in time, where the site has one."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import text

from api.database import Database
from common.checks import Check, CheckState

LATE, FAILS_AFTER = timedelta(minutes=2), timedelta(minutes=15)
"""So long a segment may wait beyond its time."""
SEEN = """SELECT current_setting('archive_mode') = 'on',
extract(epoch FROM current_setting('archive_timeout')::interval),
coalesce(last_archived_time, stats_reset), coalesce(last_archived_wal, ''),
pg_walfile_name(greatest(pg_current_wal_lsn(), '0/3000000') - 33554432),
coalesce(last_failed_time > last_archived_time, failed_count > 0)
FROM pg_stat_archiver"""


async def look(database: Database, at: datetime) -> list[Check]:
    """Return the check; none where the database has no archive of its log."""
    async with database.reading() as db:
        wanted, timeout_s, since, last, whole, failing = (await db.execute(text(SEEN))).one()
    if not wanted:
        return []
    # two whole segments that are not there wait; one with nothing in it is not archived, whatever its age
    waits = at - since if failing or last < whole else timedelta()
    late = waits - timedelta(seconds=float(timeout_s))
    state = CheckState.FAIL if late >= FAILS_AFTER else CheckState.WARN if late >= LATE else CheckState.OK
    said = f"{last or 'nothing'} was archived last, at {since:%Y-%m-%d %H:%M:%S} UTC"
    hint = "look at PostgreSQL's log and at `backup.wal_to` on the master; its disk fills meanwhile"
    about = "database.archive", "log of the database is archived in time"
    return [Check(*about, state, said, hint if state is not CheckState.OK else "")]
