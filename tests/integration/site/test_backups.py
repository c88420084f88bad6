"""Backups of a site by its own playbook, on a PostgreSQL of their own: this machine is reservoir and master."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.site import deployment, inventory
from appliance.site.backup import health, restore, sealing, signature
from appliance.site.backup.catalogue import Catalogue, Record
from appliance.site.backup.make import Backups
from appliance.site.backup.secrets import MASTER, Places
from appliance.site.deployment import DeployListener, Deployment
from appliance.site.model import Site
from appliance.site.rebuild import UNDER_WAY, Rebuild
from common.errors import ConflictError, InputError, IntegrityError, NotFoundError, ProcessError, UnavailableError
from reservoir.intake.trust import Spoken
from tests import postgresql

SITE: dict[str, Any] = {
    "name": "lab",
    "nodes": [{"name": "n1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}],
}
NOW = datetime(2026, 11, 23, 7, 30, tzinfo=UTC)
KILLED_AFTER = """
import os, sys
from appliance.site import inventory
from appliance.site.backup import database, make
from tests.integration.site.test_backups import backups_of, owned
inventory.build = owned
made = database.make
def killed(*words, **how):
    made(*words, **how)
    os.kill(os.getpid(), 9)
database.make = killed
backups_of(sys.argv[1], sys.argv[2]).take()
"""


def backups_of(folder: str | Path, recipient: str, **settings: object) -> Backups:
    site = {**SITE, "backup": {"recipient": recipient, **settings}}
    top = Path(folder)
    places = Places(top / "site", top / "reservoir", top / "index", top / "etc")
    return Backups(Site.model_validate(site), lambda _: None, top / "backup", places, lambda: NOW)


BUILD = inventory.build


def owned(*words: Any, **how: Any) -> dict[str, Any]:
    """Return the inventory of a site whose database has the tests' owner."""
    hosts = BUILD(*words, **how)
    hosts["all"]["hosts"]["n1"]["database_owner"] = postgresql.OWNER
    return hosts


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """A PostgreSQL with the database of a site, which programs find by the environment."""
    with postgresql.running_server() as folder, pytest.MonkeyPatch.context() as patch:
        postgresql.let_owner_in(folder)
        patch.setattr(inventory, "build", owned)
        patch.setenv("PGHOST", str(folder))
        patch.setenv("PGUSER", "tests")
        with closing(postgresql.connect(folder, "postgres")) as connection:
            connection.execute(f"CREATE DATABASE penstock OWNER {postgresql.OWNER}")
        with closing(postgresql.connect(folder, "penstock")) as connection:
            connection.execute("CREATE TABLE sessions AS SELECT generate_series(1, 1000) AS id")
            connection.execute("CREATE TABLE gpu_samples AS SELECT generate_series(1, 10) AS id")
            connection.execute("CREATE TABLE alembic_version AS SELECT '0024' AS version_num")
        yield folder


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key, beside its public one."""
    path = tmp_path_factory.mktemp("keys") / "key.txt"
    path.with_suffix(".pub").write_text(sealing.new_identity(path))
    return path


@pytest.fixture
def backups(tmp_path: Path, key: Path, server: Path) -> Backups:
    """A site that has no backup yet."""
    assert server.is_dir()
    return filled(tmp_path, key)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, key: Path, server: Path) -> tuple[Path, Record]:
    """The folder of a site with one backup, and what was said when that was taken."""
    assert server.is_dir()
    folder = tmp_path_factory.mktemp("once")
    return folder, filled(folder, key).take()


@pytest.fixture
def taken(once: tuple[Path, Record], tmp_path: Path, key: Path) -> Backups:
    """A site that has one backup."""
    shutil.copytree(once[0], tmp_path, dirs_exist_ok=True)
    return backups_of(tmp_path, key.with_suffix(".pub").read_text())


def filled(folder: Path, key: Path) -> Backups:
    found = backups_of(folder, key.with_suffix(".pub").read_text())
    places = found.places
    for path, text in {
        places.state / "pki/ca.key": "authority",
        places.state / "audit-key": "seal",
        places.state / "site.yml": json.dumps(SITE),
        places.state / "runs/1/stdout": "a log",
        places.index / "server/+files/a/p.whl": "wheel",
        places.settings / "api.local.env": "SETTING=1",
        places.settings / "api.env": "a deploy writes it",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with closing(sqlite3.connect(places.index / "server/.sqlite")) as database, database:
        database.execute("CREATE TABLE uploads AS SELECT 'p' AS name")
    return found


def test_a_backup_has_the_database_and_everything_that_nobody_brings_back(
    once: tuple[Path, Record], taken: Backups, key: Path, tmp_path: Path
) -> None:
    record = once[1]
    assert record.name == "penstock-20261123-073000"
    assert {path.name for path in taken.folder.iterdir()} == {
        f"{record.name}{ending}" for ending in (".sql", ".sql.gz", ".tar.age", ".json")
    }
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in taken.folder.iterdir())
    assert record.good
    assert record.tables == {"alembic_version": 1, "gpu_samples": 0, "sessions": 1000}
    assert record.schema == "0024"
    assert taken.catalogue.records() == [record]
    assert "authority" not in (taken.folder / record.seal).read_bytes().decode(errors="replace")
    with sealing.opened(taken.folder / record.seal, key, tmp_path, record.files[record.seal][1]) as archive:
        names = {member.name for member in archive}
    files = {"state/pki/ca.key", "state/audit-key", "state/site.yml", "keys/site.key", "settings/api.local.env"}
    assert names == files | {MASTER, "index/+files/a/p.whl", "index/.sqlite"}
    assert taken.verify(None, key).good


def test_a_bare_machine_gets_back_what_was_sealed_and_no_other_site_does(
    taken: Backups, key: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConflictError, match="has the authority of a site already"):
        restore.unseal(None, taken.folder, key, signature.signer(taken.places), taken.places)
    bare = backups_of(tmp_path / "bare", "age1" + "q" * 58).places
    restore.unseal(None, taken.folder, key, signature.signer(taken.places), bare)
    assert (bare.state / "pki/ca.key").read_text() == "authority"
    assert (bare.state / "pki/ca.key").stat().st_mode == (taken.places.state / "pki/ca.key").stat().st_mode
    assert (bare.root / "keys/site.key").read_text() == (taken.places.root / "keys/site.key").read_text()
    assert (bare.settings / "api.local.env").read_text() == "SETTING=1"
    assert (bare.state / MASTER).is_file()
    with closing(sqlite3.connect(bare.index / "server/.sqlite")) as database:
        assert database.execute("SELECT name FROM uploads").fetchall() == [("p",)]


def test_another_key_opens_nothing_and_takes_nothing_from_the_backup(taken: Backups, tmp_path: Path) -> None:
    record = taken.catalogue.choose(None)
    sealing.new_identity(tmp_path / "other.txt")
    bare = backups_of(tmp_path / "bare", "age1" + "q" * 58).places
    with pytest.raises(InputError, match="--identity"):
        restore.unseal(None, taken.folder, tmp_path / "other.txt", signature.signer(taken.places), bare)
    assert not (bare.state / "pki").exists()
    with pytest.raises(InputError, match="--identity"):
        taken.verify(record.name, tmp_path / "other.txt")
    assert taken.catalogue.records() == [record]


def test_a_disk_that_is_full_while_it_is_opened_takes_nothing_from_the_backup(
    taken: Backups, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = taken.catalogue.choose(None)
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sealing, "TemporaryFile", lambda **_: full)
        with pytest.raises(UnavailableError, match="No space left"):
            taken.verify(record.name, key)
    assert taken.catalogue.records() == [record]


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if how != "gone":
        path.write_bytes(content if how == "altered" else content[:-50])


@pytest.mark.parametrize("ending", [".sql.gz", ".tar.age"])
@pytest.mark.parametrize(
    ("how", "said"), [("cut", "bytes instead of"), ("altered", "altered"), ("gone", "cannot be read")]
)
def test_a_damaged_backup_is_refused_and_is_good_no_more(taken: Backups, ending: str, how: str, said: str) -> None:
    record = taken.catalogue.choose(None)
    damage(taken.folder / f"{record.name}{ending}", how)
    with pytest.raises(IntegrityError, match=said):
        taken.verify(None, None)
    with pytest.raises(NotFoundError, match="no good backup"):
        taken.catalogue.choose(None)
    with pytest.raises(ConflictError, match=f"penstock backup verify {record.name}"):
        restore.drill(taken, record.name, taken.folder)


@pytest.mark.parametrize(("ending", "how"), [(".sql.gz", "gone"), (".tar.age", "altered")])
def test_one_that_was_put_right_is_good_again_and_its_plain_dump_is_made_again(
    taken: Backups, key: Path, ending: str, how: str
) -> None:
    record = taken.catalogue.choose(None)
    needed, plain = taken.folder / f"{record.name}{ending}", taken.folder / record.plain
    before = needed.read_bytes(), plain.read_bytes()
    damage(needed, how)
    damage(plain, how)
    with pytest.raises(IntegrityError, match=needed.name):
        taken.verify(record.name, key)
    needed.write_bytes(before[0])
    seen = taken.verify(record.name, key)
    assert (seen.good, seen.remade, seen.problem) == (True, seen.verified, "")
    assert taken.catalogue.choose(None) == seen
    assert (plain.read_bytes(), plain.stat().st_mode & 0o777) == (before[1], 0o600)


def test_a_drill_says_how_old_and_how_long(taken: Backups) -> None:
    moment = taken.catalogue.choose(None).moment
    done = restore.drill(replace(taken, clock=lambda: moment + timedelta(hours=1)), None, taken.folder)
    assert done.point_s == 3600
    assert done.seconds > 0


def test_a_power_cut_leaves_no_good_backup_and_the_next_one_clears_up(backups: Backups, tmp_path: Path) -> None:
    recipient = str(backups.site.backup.recipient)
    killed = subprocess.run([sys.executable, "-c", KILLED_AFTER, tmp_path, recipient], check=False)
    assert killed.returncode == -9
    left = {path.name for path in backups.folder.iterdir()}
    assert "penstock-20261123-073000.sql.gz" in left
    assert backups.catalogue.records() == []
    told = health.judged(backups.site, backups.folder, NOW)[0]
    assert "penstock-20261123-073000: it was broken off" in told.evidence
    later = replace(backups, clock=lambda: NOW + timedelta(minutes=1))
    record = later.take()
    assert all(path.name.startswith(record.name) for path in backups.folder.iterdir())


def test_a_disk_that_is_full_leaves_the_backup_before(backups: Backups) -> None:
    backups.folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", backups.folder], check=True)
    try:
        good = backups.take()
        (backups.places.state / "large").write_bytes(os.urandom(100_000))
        with pytest.raises((OSError, UnavailableError), match="No space left"):
            replace(backups, clock=lambda: NOW + timedelta(days=1)).take()
        assert backups.catalogue.choose(None).name == good.name
        names = {path.name for path in backups.folder.iterdir() if path.suffix != ".json"}
        assert names == {f"{good.name}{ending}" for ending in (".sql", ".sql.gz", ".tar.age")}
    finally:
        subprocess.run(["umount", backups.folder], check=True)


def test_a_server_that_is_down_is_told_in_the_list(backups: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "/nowhere")
    with pytest.raises(ProcessError):
        backups.take()
    (record,) = backups.catalogue.records()
    assert not record.good
    assert "/nowhere" in record.problem


def test_backups_go_by_count_and_are_copied(backups: Backups, tmp_path: Path) -> None:
    recipient = str(backups.site.backup.recipient)
    (tmp_path / "disk").mkdir()
    for day in range(3):
        found = backups_of(tmp_path, recipient, keep=2, copy_to=str(tmp_path / "disk"))
        record = replace(found, clock=partial(NOW.__add__, timedelta(days=day))).take()
    for place in (Catalogue(backups.folder), Catalogue(tmp_path / "disk/lab")):
        assert [each.name for each in place.records()] == ["penstock-20261125-073000", "penstock-20261124-073000"]
        place.require_whole(place.choose(None))
    assert record.copied == str(tmp_path / "disk/lab")
    assert not record.apart
    assert [path.stem for path in backups.folder.glob("*.sql")] == ["penstock-20261125-073000"]
    lines = json.loads((backups.folder / "penstock-20261124-073000.json").read_text())["files"]
    assert set(lines) == {"penstock-20261124-073000.sql.gz", "penstock-20261124-073000.tar.age"}


SYSTEMCTL = """#!/bin/sh
echo "$@" >> {calls}
case "$1" in
  show) printf 'Id=penstock-api.service\\nLoadState=loaded\\nActiveState=%s\\n' "$(cat {state})" ;;
  stop) echo inactive > {state} ;;
  start) echo active > {state} ;;
esac
"""
MIGRATED = """#!/bin/sh
echo '{"changed": false}'
"""
HEALTH = """
import http.server, socketserver, sys
class Health(http.server.BaseHTTPRequestHandler):
    def address_string(self): return ""
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.end_headers()
socketserver.UnixStreamServer(sys.argv[1], Health).serve_forever()
"""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A unit, a socket and a systemd as of a deployed API; gives the file with what it was told."""
    programs, calls, state = tmp_path / "bin", tmp_path / "calls", tmp_path / "state"
    programs.mkdir()
    calls.touch()
    state.write_text("active")
    for name, text in {"systemctl": SYSTEMCTL.format(calls=calls, state=state), "migrate": MIGRATED}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    build = inventory.build

    def built(*words: object, **how: object) -> dict[str, object]:
        hosts = build(*words, **how)  # type: ignore[arg-type]
        hosts["all"]["hosts"]["n1"] |= {
            "database_backup_folder": str(tmp_path / "on-its-way"),
            "database_backup_unit": str(state),
            "database_backup_socket": str(tmp_path / "socket"),
            "database_backup_migrate": ["migrate"],
            "database_backup_local": [f"{tmp_path}/own/*.log"],
            "database_backup_named": [f"{tmp_path}/ldap.password"],
        }
        return hosts

    monkeypatch.setattr(inventory, "build", built)
    with subprocess.Popen([sys.executable, "-c", HEALTH, tmp_path / "socket"]) as health:
        yield calls
        health.kill()


def test_a_restore_brings_back_database_and_files_and_keeps_what_was_there(
    backups: Backups, key: Path, api: Path, server: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own/20261123.log"
    own.parent.mkdir()
    own.write_text("line 1")
    password = tmp_path / "ldap.password"
    password.write_text("secret")
    backups.take()
    own.write_text("another log")
    password.unlink()
    bare = backups_of(tmp_path / "bare", str(backups.site.backup.recipient))
    restore.unseal(None, backups.folder, key, signature.signer(backups.places), bare.places)
    bare = replace(bare, clock=lambda: NOW + timedelta(hours=2))
    with pytest.raises(ProcessError, match="--replace"):
        restore.restore(bare, None, backups.folder, replace=False)
    assert own.read_text() == "another log"
    assert "stop" not in api.read_text(), "what is refused stops no API"
    with closing(postgresql.connect(server, "penstock")) as connection:
        connection.execute("DELETE FROM sessions WHERE id > 3")
    api.write_text("")
    done = restore.restore(bare, None, backups.folder, replace=True)
    assert done.kept == "penstock_before_20261123093000"
    with closing(postgresql.connect(server, "penstock")) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchall() == [(1000,)]
    with closing(postgresql.connect(server, done.kept)) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchall() == [(3,)]
    assert own.read_text() == "line 1"
    assert password.read_text() == "secret"
    assert own.with_name("20261123.log.before").read_text() == "another log"
    told = [line.split()[0] for line in api.read_text().splitlines()]
    assert told.index("stop") < told.index("start")
    assert not (bare.places.state / MASTER).exists()


def test_work_that_appears_while_a_dump_loads_is_told_before_anything_is_stopped(
    taken: Backups, api: Path, server: Path, tmp_path: Path
) -> None:
    """Nobody has a session when the restore begins; somebody has one when the dump is loaded."""
    (tmp_path / "bin/migrate").write_text(f"{MIGRATED}psql -qd penstock -c 'INSERT INTO sessions VALUES (7)'\n")
    with closing(postgresql.connect(server, "penstock")) as connection:
        connection.execute("DELETE FROM sessions")
        try:
            with pytest.raises(ProcessError, match="--replace"):
                restore.restore(taken, None, taken.folder, replace=False)
            assert "stop" not in api.read_text(), "what is refused stops no API"
            assert connection.execute("SELECT id FROM sessions").fetchall() == [(7,)]
            assert ("penstock_restored",) not in connection.execute("SELECT datname FROM pg_database").fetchall()
        finally:
            connection.execute("DELETE FROM sessions; INSERT INTO sessions SELECT generate_series(1, 1000)")


def test_a_bare_machine_is_rebuilt_step_by_step(
    taken: Backups, key: Path, api: Path, server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsealed and restored as it is; of the deploy what the restore finds: an authority as before, and no work."""
    bare = backups_of(tmp_path / "bare", "age1" + "q" * 58).places

    def deploy(
        site: Site, bundle: Path, _: object, *, file: str, state: Path, root: Path, spoken: Spoken
    ) -> Deployment:
        assert (site.name, bundle.name, json.loads(file)) == ("lab", "bundle", SITE)
        assert (state / "pki/ca.key").read_text() == "authority"
        assert (root / "keys/site.key").read_text() == (taken.places.root / "keys/site.key").read_text()
        with closing(postgresql.connect(server, "postgres")) as connection:
            connection.execute("DROP DATABASE penstock WITH (FORCE)")
            connection.execute(f"CREATE DATABASE penstock OWNER {postgresql.OWNER}")
        with closing(postgresql.connect(server, "penstock")) as connection:
            connection.execute("CREATE TABLE sessions (id int)")
        return Deployment(site.name, "1", bundle.name, "now")

    monkeypatch.setattr(deployment, "deploy", deploy)
    by = signature.signer(taken.places)
    done = Rebuild(taken.folder, key, tmp_path / "bundle", by, DeployListener(), bare).run(None)
    assert list(done.seconds) == ["unseal", "deploy", "restore"]
    assert done.restored.record.tables["sessions"] == 1000
    assert done.restored.kept == "", "nothing of a new database is kept"
    with closing(postgresql.connect(server, "penstock")) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchall() == [(1000,)]
    assert (bare.settings / "api.local.env").read_text() == "SETTING=1"
    assert not (bare.state / UNDER_WAY).exists()
    assert api.read_text().splitlines()[-1].startswith("start")
