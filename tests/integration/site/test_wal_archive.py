"""The archive of the database's log: a cluster that is lost comes back as at a moment, with Debian's own pgBackRest."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from api.control import database_check
from api.database import Database
from appliance.site import inventory
from appliance.site.backup import archive
from appliance.site.backup.make import Backups
from appliance.site.backup.secrets import Places
from appliance.site.model import Site
from common.checks import CheckState
from common.errors import InputError, ProcessError
from tests import postgresql
from tests.integration.edge import rendered
from tests.integration.site.test_backups import HEALTH
from tests.role_modules import role_module

wal = role_module("database_backup/library/wal_archive.py")
NODE = {"name": "n1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}
TIMEOUT_S = 1
SYSTEMCTL = """#!/bin/sh
echo "$1 $2" >> {folder}/calls
control="runuser -u postgres -- {programs}/pg_ctl -D {folder}/data -w -l {folder}/log"
note() {{ echo "$1" > "{folder}/state.$2"; }}
case "$1 $2" in
  show*) printf 'Id=%s\\nLoadState=loaded\\nActiveState=%s\\n' "$2" "$(cat "{folder}/state.$2" || echo active)" ;;
  "stop postgresql.service") [ ! -f {folder}/data/postmaster.pid ] || $control stop; note inactive "$2" ;;
  "start postgresql.service") $control start && note active "$2" ;;
  stop*) note inactive "$2" ;;
  start*) note active "$2" ;;
esac
"""


class Master:
    """A cluster of PostgreSQL whose log is archived as the roles configure it, and the site's backups."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.configuration = folder / "wal-archive.conf"
        site = {"name": "lab", "nodes": [NODE], "backup": {"wal_to": str(folder / "wal"), "wal_timeout_s": TIMEOUT_S}}
        top = folder / "own"
        places = Places(top / "site", top / "reservoir", top / "index", top / "etc")
        self.backups = Backups(Site.model_validate(site), lambda _: None, top / "backup", places)
        self.pgbackrest = ("pgbackrest", f"--config={self.configuration}", "--stanza=penstock")

    def start(self) -> None:
        words = (postgresql.programs() / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N")
        postgresql.as_server_user(*words)
        command = " ".join((*self.pgbackrest, "archive-push", "%p"))
        said = {"database_archive_command": command, "database_archive_timeout_s": TIMEOUT_S}
        text = rendered("database", "etc/postgresql/main/conf.d/penstock.conf", **said)
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"{text}\nunix_socket_directories = '{self.folder}'\nfsync = off\n")
        known = {"wal_archive_to": self.folder / "wal", "wal_archive_site": "lab", "wal_archive_data": self.data}
        text = rendered("wal_archive", "etc/penstock/wal-archive.conf", **known, wal_archive_key="k" * 64)
        self.configuration.write_text(f"{text}pg1-socket-path={self.folder}\n")
        subprocess.run(["systemctl", "start", "postgresql.service"], check=True)
        postgresql.as_server_user(*self.pgbackrest, "stanza-create")

    def sql(self, *statements: str) -> list[Any]:
        with closing(psycopg.connect(f"host={self.folder} user=postgres dbname=penstock", autocommit=True)) as opened:
            for statement in statements:
                cursor = opened.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def act(self, action: str, **options: Any) -> dict[str, Any]:
        given = {"configuration": str(self.configuration), "database": "penstock", "to": "", "kept": ""}
        done: dict[str, Any] = wal.act({"action": action, **given, **options})
        return done

    async def check(self, later: timedelta) -> CheckState:
        """Return what the leader judges at a later moment."""
        database = Database(f"postgresql+psycopg://postgres@/penstock?host={self.folder}")
        try:
            _, found = await database_check.look(database, datetime.now(UTC) + later)
        finally:
            await database.close()
        return found.state

    def called(self) -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if not line.startswith("show")]


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[Master]:
    folder = postgresql.new_folder()
    shutil.chown(folder, "postgres")
    postgresql.open_to_owner(folder)
    found = Master(folder)
    (folder / "bin").mkdir()
    (folder / "bin/systemctl").write_text(SYSTEMCTL.format(folder=folder, programs=postgresql.programs()))
    (folder / "bin/migrate").write_text("#!/bin/sh\necho '{\"changed\": false}'\n")
    for program in (folder / "bin").iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("PGHOST", str(folder))
    build = inventory.build

    def built(*words: Any, **how: Any) -> dict[str, Any]:
        hosts = build(*words, **how)
        hosts["all"]["hosts"]["n1"] |= {
            "database_backup_folder": str(folder / "on-its-way"),
            "database_backup_unit": str(folder / "bin/migrate"),
            "database_backup_socket": str(folder / "socket"),
            "database_backup_migrate_in_place": ["migrate"],
            "database_backup_archive": str(found.configuration),
            "database_backup_local": [],
            "database_owner": postgresql.OWNER,
        }
        return hosts

    monkeypatch.setattr(inventory, "build", built)
    try:
        found.start()
        with subprocess.Popen([sys.executable, "-c", HEALTH, folder / "socket"]) as health:
            yield found
            health.kill()
    finally:
        postgresql.stop(folder)


def test_a_cluster_that_is_lost_comes_back_as_it_was_less_than_a_minute_before(master: Master) -> None:
    subprocess.run(["runuser", "-u", "postgres", "--", "createuser", postgresql.OWNER], check=True)
    subprocess.run(
        ["runuser", "-u", "postgres", "--", "createdb", f"--owner={postgresql.OWNER}", "penstock"], check=True
    )
    master.sql("CREATE TABLE sessions AS SELECT generate_series(1, 1000) AS id")
    record = master.backups.take()
    assert (record.good, record.unarchived) == (True, "")
    assert record.archived.endswith("F")
    archived = [path for path in (master.folder / "wal/lab-wal/archive/penstock").rglob("*") if path.is_file()]
    assert all(path.read_bytes()[:8] == b"Salted__" for path in archived), "nothing is archived in plain"

    master.sql("INSERT INTO sessions SELECT generate_series(1001, 1100)")
    time.sleep(0.1)
    before = datetime.now(UTC)
    time.sleep(0.1)
    with pytest.raises(ProcessError, match="--replace"):
        archive.rewind(master.backups, before, replace=False)
    assert not any(call.startswith("stop") for call in master.called()), "what is refused stops nothing"
    # the last change before the loss: how long the archive takes for it is what the recovery point tells
    master.sql("DELETE FROM sessions WHERE id > 10")

    (last,) = master.sql("SELECT pg_walfile_name(pg_current_wal_lsn())")
    deadline = time.monotonic() + 60
    while master.sql(f"SELECT last_archived_wal >= '{last[0]}' FROM pg_stat_archiver") != [(True,)]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    lost = datetime.now(UTC)
    postgresql.as_server_user(postgresql.programs() / "pg_ctl", "-D", master.data, "-m", "immediate", "stop")
    shutil.rmtree(master.data)

    backups = replace(master.backups, clock=lambda: lost)
    known = master.act("window")["penstock_archive"]
    assert known["begins"] <= f"{before:%FT%TZ}" <= known["ends"]
    with pytest.raises(wal.FaultError, match="the archive begins at"):
        master.act("recover", to="2020-01-01T00:00:00+00:00")
    with pytest.raises(wal.FaultError, match="the archive ends at"):
        master.act("recover", to=(lost + timedelta(hours=1)).isoformat())
    with pytest.raises(InputError, match="still to come"):
        archive.rehearse(backups, lost + timedelta(hours=1))
    rehearsed = master.act("recover")["penstock_archive"]
    assert rehearsed["tables"] == {"sessions": 10}
    point = lost - datetime.fromisoformat(rehearsed["moment"])
    print(f"\n   recovery point: {point.total_seconds():.1f} s, recovered in {rehearsed['seconds']:.1f} s")
    assert point < timedelta(minutes=1)
    assert master.act("drop") == {}
    assert not master.data.exists()

    done = archive.rewind(backups, before, replace=False)
    assert (done.record.tables, done.kept) == ({"sessions": 1100}, "")
    assert master.sql("SELECT count(*) FROM sessions") == [(1100,)]
    # it takes changes, and archives them on a timeline of its own
    master.sql("INSERT INTO sessions VALUES (1101)")
    postgresql.as_server_user(*master.pgbackrest, "check")
    assert master.sql("SELECT current_setting('restore_command')") == [("",)]
    assert master.sql("SELECT pg_walfile_name(pg_current_wal_lsn()) ~ '^00000002'") == [(True,)]
    called = master.called()
    assert called.index("stop penstock-api.service") < called.index("start postgresql.service", 1)
    assert called[-1] == "start penstock-api.service"

    assert asyncio.run(master.check(timedelta())) is CheckState.OK
    (master.folder / "wal").rename(master.folder / "away")
    master.sql("INSERT INTO sessions VALUES (1102)", "SELECT pg_switch_wal()")
    deadline = time.monotonic() + 60
    while not master.sql("SELECT 1 FROM pg_stat_archiver WHERE last_failed_time > last_archived_time"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert asyncio.run(master.check(timedelta(minutes=5))) is CheckState.WARN
    assert asyncio.run(master.check(timedelta(hours=1))) is CheckState.FAIL
