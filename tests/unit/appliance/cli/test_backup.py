"""`penstock backup` on the command line; backups themselves are played here, or are records in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from appliance.cli import backup
from appliance.cli.backup import app
from appliance.site import deployment
from appliance.site.backup import archive, make, signature
from appliance.site.backup import restore as restoring
from appliance.site.backup.archive import Window
from appliance.site.backup.catalogue import Catalogue, Record
from appliance.site.backup.make import Backups
from appliance.site.backup.restore import Restored
from appliance.site.deployment import Deployment
from appliance.site.rebuild import Rebuild, Rebuilt
from common.errors import InputError, PartialError, Problem, ProcessError

EXAMPLE = str(Path(__file__).parents[4] / "inventory/example/site.yml")
NOW = f"{datetime.now(UTC):%FT%TZ}"
SIGNER = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
RECORD = Record(
    "penstock-20261123-073000",
    NOW,
    "lab",
    tables={"users": 3, "projects": 4},
    seconds={"dump": 1.4, "restore": 5.2},
    verified=NOW,
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.setattr(deployment, "require_controller", lambda _: None)
    monkeypatch.setattr(deployment, "STATE", tmp_path / "state")
    monkeypatch.setattr(make, "FOLDER", tmp_path)
    monkeypatch.setattr(Backups, "take", lambda *_: RECORD)
    monkeypatch.setattr(Backups, "verify", lambda *_: RECORD)
    done = Restored(RECORD, 3600, 12.5, "penstock_before_1")
    monkeypatch.setattr(restoring, "restore", lambda *_, **__: done)
    monkeypatch.setattr(restoring, "drill", lambda *_, **__: done)
    monkeypatch.setattr(restoring, "unseal", lambda *_: (RECORD, 7))
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("command", ["now", "verify"])
def test_a_good_backup_says_what_came_back(run: Callable[..., Any], command: str) -> None:
    out = run(command, "-f", EXAMPLE).stdout
    assert f"{RECORD.name} is good: 7 rows of 2 tables came back; dumped in 1.4 s, loaded in 5.2 s" in out
    assert json.loads(run(command, "-f", EXAMPLE, "-o", "json").stdout)["name"] == RECORD.name


def test_a_backup_without_keys_says_so(run: Callable[..., Any]) -> None:
    assert "has no authority and no keys" in run("now", "-f", EXAMPLE).stdout


def test_a_dump_that_was_made_again_is_told(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "made again" not in run("verify", "-f", EXAMPLE).stdout
    monkeypatch.setattr(Backups, "verify", lambda *_: replace(RECORD, remade=NOW))
    assert f"{RECORD.plain} was damaged, and was made again" in run("verify", "-f", EXAMPLE).stdout


def test_a_backup_without_one_beside_the_archive_says_so(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backups, "take", lambda *_: replace(RECORD, unarchived="the archive is full"))
    assert "has no backup to begin with: the archive is full" in run("now", "-f", EXAMPLE).stdout


@pytest.mark.parametrize("command", ["restore", "drill"])
def test_the_way_back_says_how_old_and_how_long(run: Callable[..., Any], command: str) -> None:
    out = run(command, "-f", EXAMPLE).stdout
    assert "1h ago" in out
    assert "Recovery time: 12.5 s" in out
    assert ("kept as penstock_before_1" in out) == (command == "restore")
    assert json.loads(run(command, "-f", EXAMPLE, "-o", "json").stdout)["recovery_time_s"] == 12.5


def test_the_list_shows_what_is_wrong_and_fails_where_no_backup_is_good(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    failed = Record(f"penstock-{datetime.now(UTC):%Y%m%d-%H%M%S}", NOW, problem="the disk is full")
    Catalogue(tmp_path).write(failed)
    result = run("list", "-f", EXAMPLE)
    assert "failed: the disk is full" in result.stdout
    assert result.exit_code == 1
    assert "warn: backup.age: there is no good backup" in result.stdout
    Catalogue(tmp_path).remove(failed.name)
    Catalogue(tmp_path).write(Record("penstock-20200101-000000", "2020-01-01T00:00:00Z", problem="the disk is full"))
    Catalogue(tmp_path).write(Record("penstock-20200101-000001", "2020-01-01T00:00:01Z", verified=NOW))
    result = run("list", "-f", EXAMPLE)
    assert result.exit_code == 1
    assert "fail: backup.age: the last good backup is penstock-20200101-000001. Hint:" in result.stdout
    listed: dict[str, Any] = json.loads(run("list", "-f", EXAMPLE, "-o", "json").stdout)
    assert [each["good"] for each in listed["backups"]] == [True, False]
    assert run("list", "--from", tmp_path).exit_code == 0


def test_a_site_without_a_backup_fails_from_its_first_moment(run: Callable[..., Any], tmp_path: Path) -> None:
    assert run("list", "-f", EXAMPLE).exit_code == 1
    Catalogue(tmp_path).write(RECORD)
    assert run("list", "-f", EXAMPLE).exit_code == 0
    (tmp_path / f"penstock-{datetime.now(UTC):%Y%m%d-%H%M%S}.x1y2").mkdir()
    result = run("list", "-f", EXAMPLE)
    assert (result.exit_code, "failed: it was broken off" in result.stdout) == (0, True)


def test_one_of_a_clock_that_was_ahead_is_named(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Record("penstock-29991231-000000", NOW, verified=NOW, number=1)
    Catalogue(tmp_path).write(ahead)
    assert "good, by a clock that was ahead" in run("list", "-f", EXAMPLE).stdout
    monkeypatch.setattr(Backups, "verify", lambda *_: ahead)
    assert "; by a clock that was ahead" in run("verify", "-f", EXAMPLE).stdout


def test_what_was_sealed_comes_back_before_a_deploy(run: Callable[..., Any], tmp_path: Path) -> None:
    words = ("unseal", "--identity", tmp_path / "key.txt", "--from", tmp_path)
    result = run(*words, "--signer", SIGNER)
    assert "7 files are back. Now deploy with /var/lib/penstock/site/site.yml" in result.stdout


def test_a_bare_machine_is_told_whose_backups_it_takes(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def unseal(_: object, __: Path, ___: Path, by: str) -> tuple[Record, int]:
        asked.append(by)
        return RECORD, 7

    monkeypatch.setattr(restoring, "unseal", unseal)
    words = ("unseal", "--identity", tmp_path / "key.txt", "--from", tmp_path)
    assert isinstance(run(*words).exception, InputError)
    assert isinstance(run(*words, "--unsigned", "--signer", SIGNER).exception, InputError)
    run(*words, "--signer", SIGNER)
    run(*words, "--unsigned")
    (tmp_path / "key.txt").write_text(f"# signer: {SIGNER}\n")
    run(*words)
    assert asked == [SIGNER, "", SIGNER]


def test_the_line_for_the_file_of_the_key_is_printed(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(signature, "signer", lambda _: SIGNER)
    monkeypatch.setattr(backup, "SITE", Path(EXAMPLE))
    assert run("signer").stdout == f"# signer: {SIGNER}\n"
    assert json.loads(run("signer", "-o", "json").stdout) == {"signer": SIGNER}


def test_a_key_is_made_for_one_reader_and_never_twice(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "key.txt"
    assert run("key", path).stdout.startswith("recipient: age1")
    assert path.stat().st_mode & 0o777 == 0o600
    assert run("key", path).exit_code == 1


def test_a_rebuild_says_what_each_step_took_and_who_was_left_out(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = Deployment("lab", "1", "b", "2026-11-23T07:30:00Z")
    steps = {"unseal": 1.0, "deploy": 200.5, "restore": 12.0}
    done = Rebuilt(Restored(RECORD, 3600, 12.0), deployed, steps)
    monkeypatch.setattr(Rebuild, "run", lambda *_: done)
    words = ("rebuild", "--identity", "key.txt", "--signer", SIGNER, "--bundle", "/media/penstock")
    assert "back after 213.5 s: unseal 1.0 s, deploy 200.5 s, restore 12.0 s" in run(*words).stdout
    assert json.loads(run(*words, "-o", "json").stdout)["seconds"] == steps
    deployed.left_out = {"worker1": [Problem("worker1", "it is down", "deploy again")]}
    result = run(*words)
    assert isinstance(result.exception, PartialError)


@pytest.mark.parametrize(
    ("words", "to"),
    [
        (["--wal"], None),
        (["--to-time", "2026-11-23T08:00:00+0100"], datetime(2026, 11, 23, 7, tzinfo=UTC)),
        (["--to-time", "2026-11-23 07:00:00Z"], datetime(2026, 11, 23, 7, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize(("command", "way"), [("restore", "rewind"), ("drill", "rehearse")])
def test_the_log_leads_to_its_end_or_to_a_moment(
    run: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    way: str,
    words: list[str],
    to: datetime | None,
) -> None:
    asked: list[object] = []

    def go(_: object, to: datetime | None, *__: object, **___: object) -> Restored:
        asked.append(to)
        return Restored(RECORD, 12, 8.5, "/var/lib/postgresql/15/main.before")

    monkeypatch.setattr(archive, way, go)
    out = run(command, *words, "-f", EXAMPLE).stdout
    assert asked == [to]
    assert "12s ago" in out
    assert ("`rm -r /var/lib/postgresql/15/main.before` removes it" in out) == (command == "restore")
    assert isinstance(run(command, RECORD.name, *words, "-f", EXAMPLE).exception, InputError)


def test_the_list_shows_the_recovery_window_or_why_it_is_not_known(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site.yml"
    site.write_text(Path(EXAMPLE).read_text() + "\nbackup: {wal_to: /mnt/wal}\n")
    known = Window("2026-11-22T02:00:00Z", "2026-11-23T07:29:40Z")
    monkeypatch.setattr(archive, "window", lambda *_: known)
    assert json.loads(run("list", "-f", site, "-o", "json").stdout)["window"] == vars(known)
    assert "Recovery window by the log: 2026-11-2" in run("list", "-f", site).stdout
    assert json.loads(run("list", "-f", EXAMPLE, "-o", "json").stdout)["window"] == {}

    def away(*_: object) -> Window:
        raise ProcessError("the master is down", where="master1", hint="start it")

    monkeypatch.setattr(archive, "window", away)
    assert "unknown: master1: the master is down" in run("list", "-f", site).stdout


def test_what_changes_something_is_noted_for_the_audit_log(
    run: Callable[..., Any], noted: Callable[[], list[tuple[str, str, bool]]], tmp_path: Path
) -> None:
    run("list", "-f", EXAMPLE)
    run("drill", "-f", EXAMPLE)
    run("verify", "-f", EXAMPLE)
    assert noted() == []
    run("now", "-f", EXAMPLE)
    run("restore", "-f", EXAMPLE)
    run("restore", RECORD.name, "-f", EXAMPLE)
    run("unseal", "--identity", tmp_path / "key.txt", "--signer", SIGNER)
    assert noted() == [
        ("backup now", "backups", True),
        ("backup restore", "backups/newest", True),
        ("backup restore", f"backups/{RECORD.name}", True),
        ("backup unseal", "backups/newest", True),
    ]
