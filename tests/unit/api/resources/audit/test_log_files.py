"""Files of the audit log after a crash between file and database: each entry stands in them once, however long."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.resources.audit.chain import GENESIS, Entry
from api.resources.audit.log_files import LogFiles

AT = datetime(2026, 11, 23, 23, 59, tzinfo=UTC)
MIB = 1 << 20


def entry(name: str, mib: int = 0) -> tuple[str, Entry]:
    return name, {"user": "alice", "changes": [{"before": "x" * (mib * MIB)}]}


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    return LogFiles(tmp_path, b"a key of this test")


def names(log: LogFiles) -> list[str]:
    return [str(one["id"]) for one in log.newest_first()][::-1]


def test_what_comes_again_after_a_crash_is_not_written_again(log: LogFiles) -> None:
    before = log.append([entry("0")], AT)
    batch = [entry(f"{number}", 2) for number in range(1, 5)]
    head = log.append(batch, AT, before)
    assert log.append([*batch, entry("5")], AT, before).seq == head.seq + 1
    assert names(log) == ["0", "1", "2", "3", "4", "5"]
    assert log.verify({}).ok


def test_crashes_on_both_sides_of_midnight(log: LogFiles) -> None:
    first = [entry("1"), entry("2")]
    log.append(first, AT)
    log.append([*first, entry("3")], AT + timedelta(days=1))
    log.append([*first, entry("3"), entry("4")], AT + timedelta(days=1), GENESIS)
    assert names(log) == ["1", "2", "3", "4"]


def test_a_line_that_is_longer_than_all_others(log: LogFiles) -> None:
    before = log.append([entry("0")], AT)
    log.append([entry("1", 5)], AT, before)
    log.append([entry("1", 5), entry("2")], AT, before)
    assert names(log) == ["0", "1", "2"]
    assert log.verify({}).ok


def test_a_long_line_that_was_cut_off_is_taken_away_whole(log: LogFiles, tmp_path: Path) -> None:
    before = log.append([entry("0")], AT)
    log.append([entry("1", 6)], AT, before)
    path = tmp_path / f"{AT:%Y%m%d}.log"
    path.write_bytes(path.read_bytes()[:-MIB])
    log.append([entry("1")], AT, before)
    assert names(log) == ["0", "1"]
    assert log.verify({}).ok


@pytest.mark.parametrize(
    ("came", "names"),
    [
        (["20261123", "20261124", "20261123", "20261124", "20261125"], ["20261123", "20261124", "20261125"]),
        (
            ["20261123", "20271123", "20261123", "20261123", "20261124", "20271123", "20271124"],
            ["20261123", "20271123", "20271123-20261123", "20271123-20261124", "20271123-20271123", "20271124"],
        ),
        (
            ["20271123", "20261123", "20270301", "20261124", "20261125", "20270302", "20280101"],
            [
                *("20271123", "20271123-20261123", "20271123-20270301", "20271123-20270301-20261124"),
                *("20271123-20270301-20261125", "20271123-20270302", "20280101"),
            ],
        ),
    ],
    ids=["a day", "a year", "twice"],
)
def test_each_day_has_a_file_also_behind_one_that_is_dated_ahead(
    log: LogFiles, came: list[str], names: list[str]
) -> None:
    head = GENESIS
    for number, day in enumerate(came):
        head = log.append([entry(f"{number}")], datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC), head)
    assert [one.day for one in log.days()] == names
    assert log.verify({"database": [head]}).ok
    assert [str(one["id"]) for one in log.newest_first()][::-1] == [f"{number}" for number in range(len(came))]


def test_a_clock_that_goes_to_and_fro_makes_no_name_that_is_too_long(log: LogFiles) -> None:
    head = GENESIS
    for number in range(100):
        at = datetime(2026, 11, 1 if number % 2 else 5, tzinfo=UTC)
        head = log.append([entry(f"{number}")], at, head)
    assert log.verify({"database": [head]}).ok


def test_what_a_day_had_is_known_without_all_of_it_in_memory(log: LogFiles) -> None:
    head = log.append([entry(f"{number}", 1) for number in range(1, 21)], AT)
    tracemalloc.start()
    found = log.extent("20261123")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == {"day": "20261123", "first": 1, "last": 20, "mac": head.mac}
    assert peak < 12 * MIB
