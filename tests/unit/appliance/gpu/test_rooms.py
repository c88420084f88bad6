"""Accounts on file systems of their own. Mounting needs its privilege, without which these tests are left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.gpu import files, rooms


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "c1/account"
    rooms.take(folder)
    if not os.path.ismount(folder):
        pytest.skip("file systems may not be mounted here")
    yield folder
    rooms.give_back(folder)


def fill(path: Path) -> None:
    """Write to a file until there is no room; ends at 16 rooms."""
    with path.open("ab", buffering=0) as file:
        for _ in range(16):
            file.write(bytes(rooms.SIZE_KIB << 10))


def crowd(folder: Path) -> None:
    """Make folders until there is no room; ends at 16 rooms."""
    for number in range(16 * rooms.FILES):
        (folder / str(number)).mkdir()


def test_an_account_fits_and_can_neither_grow_nor_get_company(room: Path) -> None:
    files.create_account(room / "account", 16)
    with pytest.raises(OSError, match="No space left"):
        fill(room / "account")
    assert (room / "account").stat().st_size <= rooms.SIZE_KIB << 10
    with pytest.raises(OSError, match="No space left"):
        crowd(room)


def test_a_room_is_taken_once_and_keeps_what_is_in_it(room: Path) -> None:
    (room / "account").touch()
    rooms.take(room)
    assert [file.name for file in room.iterdir()] == ["account"]
    rooms.give_back(room)
    assert list(room.iterdir()) == [], "it was mounted once"


def test_a_room_is_given_back_though_somebody_is_in_it(room: Path) -> None:
    with (room / "account").open("wb"):
        rooms.give_back(room)
        assert not os.path.ismount(room)
    rooms.give_back(room)
    rooms.clear(room.parent)
    assert not room.parent.exists()


def test_what_cannot_be_removed_is_left(room: Path) -> None:
    (room / "account").touch()
    rooms.clear(room.parent)
    assert (room / "account").exists(), "another file system is not emptied"
