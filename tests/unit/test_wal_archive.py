"""What the archive of the database's log says of its own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.role_modules import role_module

wal_archive = role_module("database_backup/library/wal_archive.py")

SEGMENT = "000000010000000000000003"


def test_a_segment_that_root_does_not_see_is_no_segment_of_1970(tmp_path: Path) -> None:
    """As on NFS, where the server takes root for nobody: what only postgres may look into seems to be empty."""
    configuration = tmp_path / "pgbackrest.conf"
    configuration.write_text(f"[global]\nrepo1-path={tmp_path}\n[penstock]\npg1-path={tmp_path / 'main'}\n")
    archive = wal_archive.Archive(configuration)
    with pytest.raises(wal_archive.FaultError, match=f"{SEGMENT}.*no_root_squash"):
        archive.archived_at(SEGMENT)
    folder = tmp_path / "archive" / wal_archive.STANZA / "15-1" / SEGMENT[:16]
    folder.mkdir(parents=True)
    file = folder / f"{SEGMENT}-0123456789abcdef.gz"
    file.touch()
    assert archive.archived_at(SEGMENT) == file.stat().st_mtime
