"""The archive of the database's log with the PostgreSQL and the pgBackRest of Debian 13, as the role sets them up."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ansible
import pytest

from appliance.site import playbook
from appliance.site.playbook import Result
from tests.integration.edge import rendered
from tests.integration.reservoir.conftest import Machine
from tests.integration.site import role_alone
from tests.integration.site.packages import machine_with_packages
from tests.tree import ROOT

VERSION = "17"
CLUSTER = f"/var/lib/postgresql/{VERSION}/main"
MODULE = ROOT / "roles/database_backup/library/wal_archive.py"
CONFIGURATION = "/etc/penstock/wal-archive.conf"
PGBACKREST = f"pgbackrest --config={CONFIGURATION} --stanza=penstock"
SETTINGS = f"/etc/postgresql/{VERSION}/main/conf.d/penstock.conf"
ACT = "import json, sys, wal_archive; print(json.dumps(wal_archive.act(json.load(sys.stdin))))"
ARCHIVED_S = 60


@dataclass(frozen=True)
class Master:
    """A machine of Debian 13 with a database, and what a deploy and the controller do on it."""

    machine: Machine
    folder: Path

    def deploy(self) -> Result:
        """Run the role as a deploy does."""
        known = {"site_wal": {"wal_to": "/mnt/wal", "wal_days": 7}, "site_name": "lab", "site_state": str(self.folder)}
        connection = {"ansible_connection": "community.docker.docker", "ansible_host": self.machine.identity}
        hosts = {"all": {"hosts": {"m1": known | connection}}}
        done = playbook.run("wal_archive", hosts, state=self.folder / "state", listen=lambda _: None)
        done.require_success()
        return done

    def act(self, action: str, **options: str) -> dict[str, Any]:
        """Do what the controller has done there, by the Python of that release."""
        given = {"action": action, "configuration": CONFIGURATION, "database": "penstock", "to": "", "kept": ""}
        said = json.dumps(given | options)
        done: dict[str, Any] = json.loads(self.machine.run(f"cd /module && echo '{said}' | python3 -B -c '{ACT}'"))
        return done

    def sql(self, statement: str) -> str:
        words = "psql --no-psqlrc --tuples-only --no-align --dbname penstock"
        return self.machine.run(f'runuser -u postgres -- {words} --command "{statement}"').strip()

    def rows(self) -> int:
        return int(self.sql("SELECT count(*) FROM sessions"))

    def archive(self) -> None:
        """Wait until all that was written is archived."""
        last = self.sql("SELECT pg_walfile_name(pg_current_wal_lsn())")
        self.sql("SELECT pg_switch_wal()")
        deadline = time.monotonic() + ARCHIVED_S
        while self.sql(f"SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver") != "t":
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture
def master(
    product_bundle: Path, node_images: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Master]:
    role_alone.lay_out(tmp_path, "wal_archive", monkeypatch)
    (tmp_path / "wal-key").write_text("k" * 64)
    [library] = ansible.__path__
    mounts = {MODULE: "/module/wal_archive.py", library: "/module/ansible"}
    options = [word for path, place in mounts.items() for word in ("--volume", f"{path}:{place}:ro")]
    image = node_images["trixie"]
    with machine_with_packages(product_bundle, "debian13", image, tmp_path, *options) as machine:
        machine.run("apt-get install --quiet --yes --no-install-recommends postgresql")
        command = {"database_archive_command": f"{PGBACKREST} archive-push %p", "database_archive_timeout_s": 1}
        text = rendered("database", "etc/postgresql/main/conf.d/penstock.conf", **command)
        machine.run(f"mkdir -p /etc/penstock /mnt/wal && cat > {SETTINGS} <<'END'\n{text}fsync = off\nEND")
        machine.run(f"pg_ctlcluster {VERSION} main start")
        machine.run("runuser -u postgres -- createdb penstock")
        yield Master(machine, tmp_path)


def test_a_cluster_of_debian_13_comes_back_as_at_a_moment(master: Master) -> None:
    master.deploy()
    assert sum(counts.changed for counts in master.deploy().nodes.values()) == 0
    master.sql("CREATE TABLE sessions AS SELECT generate_series(1, 1000) AS id")
    assert master.act("backup")["penstock_archive"]["backup"].endswith("F")
    master.sql("INSERT INTO sessions SELECT generate_series(1001, 1100)")
    time.sleep(0.1)
    before = datetime.now(UTC)
    time.sleep(0.1)
    master.sql("DELETE FROM sessions WHERE id > 10")
    master.archive()
    master.machine.run(f"pg_ctlcluster {VERSION} main stop -m immediate && rm -rf {CLUSTER}")

    assert master.act("recover", to=before.isoformat())["penstock_archive"]["tables"] == {"sessions": 1100}
    assert master.act("swap") == {"penstock_kept": ""}
    master.machine.run(f"pg_ctlcluster {VERSION} main start")
    assert master.act("promote") == {}
    assert master.rows() == 1100
    assert master.sql("SHOW server_version").startswith(f"{VERSION}.")

    # it takes changes, archives them on a timeline of its own, and comes back from there, too
    master.sql("INSERT INTO sessions VALUES (1101)")
    assert master.sql("SELECT pg_walfile_name(pg_current_wal_lsn()) LIKE '00000002%'") == "t"
    # which lets the segment be archived
    master.machine.run(f"runuser -u postgres -- {PGBACKREST} check")
    assert master.act("recover")["penstock_archive"]["tables"] == {"sessions": 1101}
    assert master.act("drop") == {}
    assert master.sql("SELECT current_setting('restore_command')") == ""
