"""Markers of storages: made once, and never on what is not the storage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.role_modules import role_module

markers = role_module("storage_marker/library/storage_marker.py")


def test_a_marker_is_made_once_whoever_is_first(tmp_path: Path) -> None:
    marker = tmp_path / ".penstock-storage"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: markers.make(marker), range(50)))
    assert [path.name for path in tmp_path.iterdir()] == [marker.name]
    found = marker.read_text().strip()
    markers.make(marker)
    assert marker.read_text().strip() == found
    assert marker.stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize(
    ("written", "expected", "is_mounted", "told"),
    [
        ("", "", True, ""),
        ("one", "", True, ""),
        ("one", "one", True, ""),
        ("one", "one", False, ""),
        ("", "", False, "nothing is mounted there"),
        ("", "one", False, "nothing is mounted there"),
        ("", "one", True, "there is no .penstock-storage, and the site knows it by one"),
        ("two", "one", True, "what is there has the id two, and the site knows it by one"),
    ],
)
def test_what_is_not_the_storage_is_not_marked(
    tmp_path: Path, written: str, expected: str, *, is_mounted: bool, told: str
) -> None:
    marker = tmp_path / ".penstock-storage"
    if written:
        marker.write_text(f"{written}\n")
    wrong = markers.fault("shared", marker, expected, is_mounted=is_mounted)
    assert told in wrong
    assert bool(told) == bool(wrong)
