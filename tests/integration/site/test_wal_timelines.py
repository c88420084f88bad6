"""Ways back behind a way back: what one has undone is still there, and hides nothing that came after it."""

from __future__ import annotations

import subprocess
import time
from datetime import UTC, datetime

from tests.integration.site.test_wal_archive import Master, master  # noqa: F401 - a fixture

ARCHIVED_S = 60


def moment() -> datetime:
    """Return a moment that no change is near to."""
    time.sleep(0.1)
    found = datetime.now(UTC)
    time.sleep(0.1)
    return found


def insert(master: Master, first: int, last: int) -> None:  # noqa: F811
    """Insert rows and wait until they are archived."""
    master.sql(f"INSERT INTO sessions SELECT generate_series({first}, {last})")
    ((segment,),) = master.sql("SELECT pg_walfile_name(pg_current_wal_lsn())")
    master.sql("SELECT pg_switch_wal()")
    deadline = time.monotonic() + ARCHIVED_S
    while master.sql(f"SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver") != [(True,)]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def recovered(master: Master, to: datetime | None) -> int:  # noqa: F811
    """Return how many rows a way back to a moment has found, beside the database."""
    found = master.act("recover", to=to.isoformat() if to else "")["penstock_archive"]
    rows: int = found["tables"]["sessions"]
    return rows


def test_a_way_back_undoes_nothing_for_good_and_the_next_one_knows_what_came_after_it(master: Master) -> None:  # noqa: F811
    subprocess.run(["runuser", "-u", "postgres", "--", "createdb", "penstock"], check=True, cwd="/")
    master.sql("CREATE TABLE sessions AS SELECT generate_series(1, 1000) AS id")
    master.act("backup")
    master.sql("INSERT INTO sessions SELECT generate_series(1001, 1100)")
    early = moment()
    master.sql("INSERT INTO sessions SELECT generate_series(1101, 1110)")
    late = moment()
    insert(master, 1111, 1115)
    # one that is full, and of what the way back undoes
    master.act("backup")

    assert recovered(master, early) == 1100
    subprocess.run(["systemctl", "stop", "postgresql.service"], check=True)
    master.act("swap", kept="before")
    subprocess.run(["systemctl", "start", "postgresql.service"], check=True)
    master.act("promote")
    insert(master, 5000, 5000)

    assert recovered(master, None) == 1101, "the end is that of what goes on"
    assert recovered(master, late) == 1110, "at that moment they were there"
    # it can take the place, too, and goes on alone
    subprocess.run(["systemctl", "stop", "postgresql.service"], check=True)
    master.act("swap", kept="before_that")
    subprocess.run(["systemctl", "start", "postgresql.service"], check=True)
    master.act("promote")
    assert master.sql("SELECT count(*) FROM sessions") == [(1110,)]
    assert master.sql("SELECT name FROM pg_file_settings WHERE name LIKE 'recovery%'") == []
    insert(master, 6000, 6000)
    assert recovered(master, None) == 1111
