"""Backups in a folder: which may go, which count, and what an interruption left."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.site.backup import health
from appliance.site.backup.catalogue import FEW, LONGEST, Catalogue, Record, described, superfluous
from appliance.site.model import Site
from common.checks import CheckState
from common.errors import ConflictError, IntegrityError, NotFoundError

NOW = datetime(2026, 11, 23, 7, 30, tzinfo=UTC)


def site(settings: dict[str, str]) -> Site:
    nodes = [{"name": "m1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}]
    return Site.model_validate({"name": "s", "nodes": nodes, "backup": settings})


SITE = site({})


def record(age_hours: float, problem: str = "", **more: object) -> Record:
    moment = NOW - timedelta(hours=age_hours)
    verified = "" if problem else f"{moment:%FT%TZ}"
    known = Record(f"penstock-{moment:%Y%m%d-%H%M%S}", f"{moment:%FT%TZ}", verified=verified, problem=problem)
    for name, value in more.items():
        setattr(known, name, value)
    return known


def written(folder: Path, known: Record) -> Record:
    dump = folder / known.dump
    dump.write_bytes(b"rows of " + known.name.encode())
    known.files = {dump.name: described(dump)}
    Catalogue(folder).write(known)
    return known


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.booleans()), max_size=12, unique_by=lambda each: each[0]),
    st.integers(1, 5),
    st.integers(1, 60),
)
def test_the_newest_good_backup_never_goes(ages: list[tuple[int, bool]], keep: int, days: int) -> None:
    known = [record(age, "" if is_good else "the disk is full") for age, is_good in sorted(ages)]
    gone = superfluous(known, keep, days, NOW)
    stay = [each for each in known if each not in gone]
    good = [each for each in known if each.good]
    assert good[:1] == [each for each in stay if each.good][:1]
    assert len([each for each in stay if each.good]) <= keep
    assert all(NOW - each.moment <= timedelta(days=days) or each in good[:FEW] for each in stay)
    assert good[: min(FEW, keep)] == [each for each in stay if each.good][: min(FEW, keep)]


def test_files_without_a_record_are_no_backup_and_go(tmp_path: Path) -> None:
    known = written(tmp_path, record(1))
    (tmp_path / "penstock-20261123-073000.sql.gz").write_bytes(b"half")
    (tmp_path / "penstock-20261123-073000.x").mkdir()
    (tmp_path / "notes.txt").write_text("of somebody")
    catalogue = Catalogue(tmp_path)
    assert catalogue.choose(None) == known
    catalogue.sweep()
    assert {path.name for path in tmp_path.iterdir()} == {known.dump, f"{known.name}.json", "notes.txt"}


def test_a_damaged_record_is_one_of_no_good_backup(tmp_path: Path) -> None:
    known = written(tmp_path, record(1))
    (tmp_path / f"{known.name}.json").write_text('{"name":')
    with pytest.raises(NotFoundError):
        Catalogue(tmp_path).choose(None)
    with pytest.raises(ConflictError, match="damaged"):
        Catalogue(tmp_path).choose(known.name)


@pytest.mark.parametrize(
    "told",
    [
        {"name": "{first}/{backup}"},
        {"name": "../first/{backup}"},
        {"files": {"../first/{backup}.sql.gz": [1, "0"]}},
        {"number": "many"},
        {"tables": {"sessions": "all"}},
        {"site": None},
    ],
)
def test_a_record_that_another_has_written_takes_nothing_from_elsewhere(tmp_path: Path, told: dict[str, Any]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    ours = written(first, record(1000))
    theirs = written(second, record(2000, problem="the disk is full"))
    text = json.dumps(told).replace("{first}", str(first)).replace("{backup}", ours.name)
    path = second / f"{theirs.name}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | json.loads(text)))
    (known,) = Catalogue(second).records()
    assert (known.name, known.problem) == (theirs.name, "its record is damaged")
    Catalogue(second).prune(14, 30, NOW)
    Catalogue(first).require_whole(ours)
    assert Catalogue(first).has(ours)


def test_what_is_named_otherwise_is_no_backup(tmp_path: Path) -> None:
    known = written(tmp_path, record(1))
    for name in (f"{known.name} (copy).json", f"{known.name}.before.json", "penstock-old.json"):
        (tmp_path / name).write_text((tmp_path / f"{known.name}.json").read_text())
    (tmp_path / "penstock-20261101.saved").mkdir()
    assert [each.name for each in Catalogue(tmp_path).tries()] == [known.name]


def test_a_backup_is_taken_by_its_name_or_not_at_all(tmp_path: Path) -> None:
    older, _ = written(tmp_path, record(30)), written(tmp_path, record(1))
    assert Catalogue(tmp_path).choose(older.name) == older
    with pytest.raises(NotFoundError, match="no backup penstock-1"):
        Catalogue(tmp_path).choose("penstock-1")


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    known = written(tmp_path, record(1))
    (tmp_path / known.dump).unlink()
    with pytest.raises(IntegrityError, match=known.dump):
        Catalogue(tmp_path).require_whole(known)


@pytest.mark.parametrize(
    ("records", "state", "said"),
    [
        ([record(1)], CheckState.OK, "the last good backup is"),
        ([record(27)], CheckState.FAIL, "the last good backup is"),
        ([record(1, "the disk is full"), record(20)], CheckState.WARN, "the disk is full"),
        ([record(1, "the disk is full"), record(30)], CheckState.FAIL, "the disk is full"),
        ([], CheckState.WARN, "no good backup"),
    ],
)
def test_late_and_failed_backups_are_told(records: list[Record], state: CheckState, said: str) -> None:
    check = next(iter(health.checks(SITE, records, NOW - timedelta(hours=2), NOW)))
    assert (check.id, check.state) == ("backup.age", state)
    assert said in check.evidence
    assert bool(check.hint) == (state is not CheckState.OK)


def test_a_site_that_never_had_one_fails_after_a_day(tmp_path: Path) -> None:
    (check,) = health.checks(SITE, [], NOW - timedelta(hours=27), NOW)
    assert check.state is CheckState.FAIL
    assert health.judged(SITE, tmp_path / "none", NOW)[0].state is CheckState.WARN


def test_tries_that_fail_do_not_make_the_site_younger(tmp_path: Path) -> None:
    Catalogue(tmp_path).write(record(50, "no room"))
    assert health.judged(SITE, tmp_path, NOW)[0].state is CheckState.FAIL


def test_a_site_is_as_old_as_what_its_first_deploy_wrote(tmp_path: Path) -> None:
    first = tmp_path / health.SINCE
    first.touch()
    before = (NOW - timedelta(days=3)).timestamp()
    os.utime(first, (before, before))
    Catalogue(tmp_path).write(record(1, "no room"))
    assert health.judged(SITE, tmp_path, NOW)[0].state is CheckState.FAIL


def test_a_backup_of_a_moment_that_is_still_to_come_proves_nothing() -> None:
    ahead = record(-24 * 40)
    for known, state in (
        ([ahead, record(1)], CheckState.WARN),
        ([ahead, record(1, "no room"), record(30)], CheckState.FAIL),
        ([ahead], CheckState.FAIL),
    ):
        check = next(iter(health.checks(SITE, known, NOW - timedelta(days=60), NOW)))
        assert check.state is state, check.evidence
        assert f"{ahead.name} is of a moment that is still to come" in check.evidence
        assert "clock" in check.hint


@pytest.mark.parametrize("time", ['""', '"2026-11-23T07:30:00"', "null"])
def test_a_record_without_a_proper_moment_is_damaged(tmp_path: Path, time: str) -> None:
    (tmp_path / "penstock-20261122-073000.json").write_text(f'{{"name": "penstock-20261122-073000", "time": {time}}}')
    (damaged,) = Catalogue(tmp_path).records()
    assert (damaged.problem, damaged.moment) == ("its record is damaged", NOW - timedelta(days=1))


WAL = {"copy_to": "/mnt/b", "wal_to": "/mnt/w"}


@pytest.mark.parametrize(
    ("settings", "known", "told"),
    [
        ({}, record(1), {"backup.sealed": "authority and keys are not in it", "backup.copy": "names no second place"}),
        (
            {"copy_to": "/mnt/b"},
            record(1, sealed=True),
            {"backup.copy": "it was taken before `backup.copy_to` was set"},
        ),
        ({"copy_to": "/mnt/b"}, record(1, uncopied="no room", sealed=True), {"backup.copy": "no room"}),
        ({"copy_to": "/mnt/b"}, record(1, copied="/mnt/b/lab", sealed=True), {"backup.copy": "on the same disk"}),
        ({"copy_to": "/mnt/b"}, record(1, copied="/mnt/b/lab", apart=True, sealed=True), {}),
        (WAL, record(1, copied="/mnt/b/lab", apart=True, sealed=True, archived="20261123-020000F"), {}),
        (
            WAL,
            record(1, copied="/mnt/b/lab", apart=True, sealed=True),
            {"backup.wal": "it was taken before `backup.wal_to` was set"},
        ),
        (
            WAL,
            record(1, copied="/mnt/b/lab", apart=True, sealed=True, unarchived="no room"),
            {"backup.wal": "no room"},
        ),
    ],
)
def test_what_a_backup_lacks_is_a_warning(settings: dict[str, str], known: Record, told: dict[str, str]) -> None:
    found = list(health.checks(site(settings), [known], NOW, NOW))
    warned = {check.id: check for check in found if check.state is CheckState.WARN}
    assert warned.keys() == told.keys()
    assert all(text in warned[id_].evidence and warned[id_].hint for id_, text in told.items())


@pytest.mark.parametrize("odd", ["folder", "pipe", "link to nothing", "link to a device", "huge", "number"])
def test_what_others_put_among_the_records_is_a_damaged_one_and_hinders_nothing(tmp_path: Path, odd: str) -> None:
    good, path = written(tmp_path, record(1)), tmp_path / "penstock-20261122-000000.json"
    if odd == "folder":
        path.mkdir()
    elif odd == "pipe":
        os.mkfifo(path)
    elif odd.startswith("link"):
        path.symlink_to("/dev/zero" if odd.endswith("device") else "/nowhere")
    elif odd == "huge":
        with path.open("wb") as file:
            file.truncate(LONGEST + 1)
    else:
        number = f'"number": {"9" * 4300}'
        known = (tmp_path / f"{good.name}.json").read_text().replace(good.name, path.stem)
        path.write_text(known.replace('"number": 0', number))
    first, second = Catalogue(tmp_path).records()
    assert (first, second.name, second.problem) == (good, path.stem, "its record is damaged")


def test_a_link_that_others_made_is_swept_and_not_what_it_points_to(tmp_path: Path) -> None:
    place, away = tmp_path / "place", tmp_path / "away"
    place.mkdir()
    away.mkdir()
    link = place / "penstock-20261122-000000.sql.gz"
    link.symlink_to(away)
    Catalogue(place).sweep()
    assert not link.is_symlink()
    assert away.is_dir()


def test_a_pipe_in_the_place_of_a_dump_is_altered_and_nobody_waits_for_it(tmp_path: Path) -> None:
    known = record(1)
    os.mkfifo(tmp_path / known.dump)
    known.files = {known.dump: (0, "0" * 64)}
    with pytest.raises(IntegrityError, match="altered"):
        Catalogue(tmp_path).require_whole(known)
    with pytest.raises(OSError, match="Invalid argument"):
        Catalogue(tmp_path).write(known)
