"""Accounts on file systems of their own. Mounting needs its privilege, without which these tests are left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.gpu import share_files, tmpfs_quota


@pytest.fixture
def quota(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "c1/account"
    tmpfs_quota.mount(folder)
    if not os.path.ismount(folder):
        pytest.skip("file systems may not be mounted here")
    yield folder
    tmpfs_quota.unmount(folder)


def fill(path: Path) -> None:
    """Write to a file until there is no space left; ends at 16 times the quota."""
    with path.open("ab", buffering=0) as file:
        for _ in range(16):
            file.write(bytes(tmpfs_quota.SIZE_KIB << 10))


def crowd(folder: Path) -> None:
    """Make folders until there is no space left; ends at 16 times the quota."""
    for number in range(16 * tmpfs_quota.FILES):
        (folder / str(number)).mkdir()


def test_an_account_fits_and_can_neither_grow_nor_get_company(quota: Path) -> None:
    share_files.create_account(quota / "account", 16)
    with pytest.raises(OSError, match="No space left"):
        fill(quota / "account")
    assert (quota / "account").stat().st_size <= tmpfs_quota.SIZE_KIB << 10
    with pytest.raises(OSError, match="No space left"):
        crowd(quota)


def test_a_quota_is_mounted_once_and_keeps_what_is_in_it(quota: Path) -> None:
    (quota / "account").touch()
    tmpfs_quota.mount(quota)
    assert [file.name for file in quota.iterdir()] == ["account"]
    tmpfs_quota.unmount(quota)
    assert list(quota.iterdir()) == [], "it was mounted once"


def test_a_quota_is_unmounted_though_somebody_is_in_it(quota: Path) -> None:
    with (quota / "account").open("wb"):
        tmpfs_quota.unmount(quota)
        assert not os.path.ismount(quota)
    tmpfs_quota.unmount(quota)
    tmpfs_quota.remove_folder(quota.parent)
    assert not quota.parent.exists()


def test_what_cannot_be_removed_is_left(quota: Path) -> None:
    (quota / "account").touch()
    tmpfs_quota.remove_folder(quota.parent)
    assert (quota / "account").exists(), "another file system is not emptied"
