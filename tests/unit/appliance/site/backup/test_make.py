"""Backups that are taken one after the other, with the database played, on clocks that are not always right."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from appliance.site.backup import database, health, make
from appliance.site.backup.catalogue import FEW, MOST, Catalogue, described
from appliance.site.backup.make import Backups
from appliance.site.backup.secrets import Places
from appliance.site.model import Site
from common.checks import CheckState
from common.errors import ConflictError, ProcessError, UnavailableError

DAY = timedelta(days=1)


@dataclass
class Days:
    """A site that takes a backup a day."""

    folder: Path
    now: datetime = datetime(2026, 11, 23, 2, tzinfo=UTC)
    fails: bool = False
    site: Site = field(init=False)

    def __post_init__(self) -> None:
        """Give it a second place."""
        second = self.folder / "second"
        second.mkdir()
        nodes = [{"name": "m1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}]
        self.site = Site.model_validate({"name": "s", "nodes": nodes, "backup": {"copy_to": str(second)}})

    @property
    def backups(self) -> Backups:
        places = Places(*(self.folder / name for name in ("site", "reservoir", "index", "etc")))
        return Backups(self.site, lambda _: None, self.folder / "backup", places, lambda: self.now)

    def go(self, days: int) -> None:
        for _ in range(days):
            self.now += DAY
            self.backups.take()

    def dump(self, _: Site, dump: Path, __: Path, **___: Any) -> dict[str, Any]:
        if self.fails:
            raise ProcessError("no room", where="m1", hint="make some")
        rows = b"rows"
        dump.write_bytes(gzip.compress(rows))
        size, sha256 = described(dump)
        plain = {"plain_size": len(rows), "plain_sha256": hashlib.sha256(rows).hexdigest()}
        told = {"present": True, "moment": f"{self.now:%FT%TZ}", "schema": "1", "tables": {}, "seconds": {}}
        return {**told, "size": size, "sha256": sha256, **plain}

    def good(self) -> list[list[str]]:
        places = [self.backups.catalogue, self.backups.second or Catalogue(self.folder / "none")]
        return [[record.name for record in place.records() if record.good] for place in places]


@pytest.fixture
def days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Days:
    days = Days(tmp_path)
    monkeypatch.setattr(database, "make", days.dump)
    return days


def test_a_clock_that_is_ahead_once_leaves_a_few_backups(days: Days) -> None:
    days.go(5)
    before = days.good()
    days.now += 60 * DAY
    days.backups.take()
    assert [names[1:] for names in days.good()] == [names[: FEW - 1] for names in before]


def test_one_of_a_clock_that_was_ahead_is_named_and_goes_by_itself(days: Days) -> None:
    days.go(3)
    days.now += 40 * DAY
    ahead = days.backups.take()
    days.now -= 39 * DAY
    check = health.judged(days.site, days.folder / "backup", days.now)[0]
    assert f"{ahead.name} is of a moment that is still to come" in check.evidence
    later = days.backups.take()
    assert (days.backups.catalogue.choose(None), days.good()[0][:2]) == (later, [later.name, ahead.name])
    assert not (days.folder / "backup" / f"{ahead.name}.sql").exists(), "the newest alone is there in plain"
    check = health.judged(days.site, days.folder / "backup", days.now)[0]
    assert (check.state, ahead.name in check.evidence) == (CheckState.WARN, True)
    for _ in range(days.site.backup.keep - 1):
        days.go(1)
    assert all(ahead.name not in names for names in days.good())
    check = health.judged(days.site, days.folder / "backup", days.now)[0]
    assert check.state is CheckState.OK, check.evidence


def test_after_a_rebuild_new_ones_are_the_newest_in_the_second_place_too(days: Days) -> None:
    days.go(20)
    shutil.rmtree(days.folder / "backup")
    days.go(3)
    here, there = days.good()
    assert (len(here), there[:3]) == (3, here)


def test_a_try_that_was_broken_off_is_told_until_the_next_good_one(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    days.go(1)
    left = days.folder / "backup/penstock-20261124-030000.x1y2"
    left.mkdir()
    days.now += timedelta(hours=2)
    tried = days.backups.catalogue.tries()
    assert [(each.name, each.good) for each in tried] == [(left.stem, False), (days.good()[0][0], True)]
    check = health.judged(days.site, days.folder / "backup", days.now)[0]
    assert (check.state, f"{left.stem}: it was broken off" in check.evidence) == (CheckState.WARN, True)
    assert "`journalctl -u 'penstock-backup*'` on m1" in check.hint
    seen: list[list[str]] = []

    def look(*words: Any, **how: Any) -> dict[str, Any]:
        seen.append([each.name for each in days.backups.catalogue.tries()])
        return days.dump(*words, **how)

    monkeypatch.setattr(database, "make", look)
    days.go(1)
    assert seen == [days.good()[0][1:]], "one that runs was not broken off"
    assert health.judged(days.site, days.folder / "backup", days.now)[0].state is CheckState.OK


def test_a_copy_that_went_is_named(days: Days) -> None:
    days.go(1)
    assert days.backups.second
    shutil.rmtree(days.backups.second.folder)
    check = {each.id: each for each in health.judged(days.site, days.folder / "backup", days.now)}["backup.copy"]
    assert (check.state, "its copy is not in" in check.evidence) == (CheckState.WARN, True)


def silence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file system answer, as a hard mount of a server that is gone: who looks into it waits without end."""
    stat = folder / "bin" / "stat"
    stat.parent.mkdir()
    stat.write_text("#!/bin/sh\nexec sleep 60\n")
    stat.chmod(0o755)
    monkeypatch.setenv("PATH", str(stat.parent), prepend=os.pathsep)
    monkeypatch.setattr(make, "ANSWERS_S", 0.2)


def test_a_second_place_that_does_not_answer_is_told_and_hinders_no_backup(
    days: Days, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silence(tmp_path, monkeypatch)
    begun = time.monotonic()
    record = days.backups.take()
    assert time.monotonic() - begun < 20
    assert (record.good, record.copied) == (True, "")
    assert "does not answer" in record.uncopied
    assert days.backups.second
    assert not days.backups.second.folder.exists()
    check = {each.id: each for each in health.judged(days.site, days.folder / "backup", days.now)}["backup.copy"]
    assert (check.state, "does not answer" in check.evidence) == (CheckState.WARN, True)


def test_a_second_place_that_hangs_while_it_is_written_to_is_left(
    days: Days, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else a backup would hold the lock of deploys for as long as the server is gone."""
    released = threading.Event()

    def hang(_: Path, __: Path) -> None:
        silence(tmp_path, monkeypatch)
        released.wait(60)

    monkeypatch.setattr(make, "LOOK_S", 0.2)
    monkeypatch.setattr(make, "_copy", hang)
    begun = time.monotonic()
    try:
        record = days.backups.take()
        assert time.monotonic() - begun < 20
    finally:
        released.set()
    assert (record.good, record.copied, "does not answer" in record.uncopied) == (True, "", True)


def test_a_second_place_that_is_slow_and_answers_has_its_copy(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = make._copy

    def crawl(source: Path, target: Path) -> None:
        time.sleep(0.5)
        copy(source, target)

    monkeypatch.setattr(make, "LOOK_S", 0.1)
    monkeypatch.setattr(make, "_copy", crawl)
    record = days.backups.take()
    assert (record.copied, record.uncopied) == (str(days.folder / "second" / "s"), "")


def test_a_copy_whose_place_does_not_answer_any_more_is_told_and_not_waited_for(
    days: Days, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The controller looks for it again and again, and is ended where it gives no sign of life."""
    days.go(1)
    silence(tmp_path, monkeypatch)
    looked: list[Path] = []
    monkeypatch.setattr(Catalogue, "has", lambda self, _: looked.append(self.folder))
    check = {each.id: each for each in health.judged(days.site, days.folder / "backup", days.now)}["backup.copy"]
    assert (check.state, "does not answer: nothing came of it in 0.2 s" in check.evidence) == (CheckState.WARN, True)
    assert looked == []
    monkeypatch.setattr(database, "check", lambda *_, **__: None)
    monkeypatch.setattr(Catalogue, "require_whole", lambda self, *_: looked.append(self.folder))
    with pytest.raises(UnavailableError, match="does not answer"):
        days.backups.verify(None, None)
    assert looked == [days.folder / "backup"]


def test_a_copy_that_is_not_what_was_copied_counts_for_nothing(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_copy", lambda _, target: target.write_bytes(b"other"))
    days.go(1)
    [record] = days.backups.catalogue.records()
    assert (record.good, record.copied) == (True, "")
    assert "is not what was copied" in record.uncopied
    check = {each.id: each for each in health.judged(days.site, days.folder / "backup", days.now)}["backup.copy"]
    assert (check.state, "is not what was copied" in check.evidence) == (CheckState.WARN, True)


def test_a_second_one_in_the_same_second_takes_nothing_from_the_first(days: Days) -> None:
    days.go(1)
    first, days.fails = days.good(), True
    with pytest.raises(ConflictError):
        days.backups.take()
    assert days.good() == first


def test_of_backups_that_fail_no_more_are_kept_than_of_good_ones(days: Days) -> None:
    days.go(2)
    days.fails = True
    for _ in range(days.site.backup.keep + 3):
        with pytest.raises(ProcessError):
            days.go(1)
    failed = [record for record in days.backups.catalogue.records() if not record.good]
    assert (len(failed), len(days.good()[0])) == (days.site.backup.keep, 2)


def test_the_archive_of_the_log_that_fails_takes_nothing_from_the_dump(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.site = days.site.model_copy(
        update={"backup": days.site.backup.model_copy(update={"wal_to": "/mnt/wal"})}, deep=True
    )
    asked: list[str] = []

    def archive(_: Site, action: str, *__: object, **___: object) -> dict[str, str]:
        asked.append(action)
        if len(asked) > 1:
            raise ProcessError("the archive is full", where="m1", hint="make room")
        return {"backup": "20261123-020000F"}

    monkeypatch.setattr(database, "archive", archive)
    days.go(2)
    last, first = days.backups.catalogue.records()
    assert asked == ["archive", "archive"]
    assert (first.good, first.archived) == (True, "20261123-020000F")
    assert (last.good, last.archived, "the archive is full" in last.unarchived) == (True, "", True)


def test_a_link_in_the_second_place_leads_no_copy_to_another_file(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server may show it once nobody looks any more."""
    days.go(1)
    secret, before = days.folder / "ca.key", b"authority"
    secret.write_bytes(before)
    name = f"penstock-{days.now + DAY:%Y%m%d-%H%M%S}.sql.gz"
    second = days.backups.second
    assert second
    sweep = Catalogue.sweep

    def sweep_then_link(place: Catalogue) -> None:
        sweep(place)
        if place.folder == second.folder and not (place.folder / name).exists():
            (place.folder / name).symlink_to(secret)

    monkeypatch.setattr(Catalogue, "sweep", sweep_then_link)
    days.go(1)
    assert secret.read_bytes() == before
    assert days.backups.catalogue.records()[0].uncopied == ""
    assert (second.folder / name).read_bytes() == (days.backups.folder / name).read_bytes()
    assert not (second.folder / name).is_symlink()


def test_a_number_that_others_put_into_the_second_place_stops_no_backup(days: Days) -> None:
    days.go(1)
    second = days.backups.second
    assert second
    (path,) = second.folder.glob("*.json")
    path.write_text(path.read_text().replace('"number": 1', f'"number": {MOST}'))
    days.go(3)
    newest = days.backups.catalogue.records()
    assert [each.name for each in newest] == sorted((each.name for each in newest), reverse=True)
    assert newest[0].number == MOST
