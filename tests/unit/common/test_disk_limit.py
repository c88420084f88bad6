"""Limit of disks that do not answer."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from common.disk_limit import DiskLimit
from common.errors import UnavailableError


def test_a_disk_that_does_not_say_how_full_it_is_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> os.statvfs_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "statvfs", broken)
    with pytest.raises(UnavailableError, match=f"{tmp_path}.* cannot be asked how full it is: Input/output error"):
        DiskLimit([tmp_path], 95).refuse_where_full("an import")
