"""What unit tests write lies in memory, where there is room: they write gigabytes, and nobody reads them afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
FREE = 2 << 30
"""Bytes that must be free there: many times what the tests of all workers hold at once."""
FOLDER = "PYTEST_DEBUG_TEMPROOT"
"""Environment variable by which pytest knows where to make its folders."""


def pytest_configure(config: pytest.Config) -> None:
    # folders that are kept of tests that passed would fill the memory
    goes = config.getini("tmp_path_retention_policy") == "failed"
    if goes and not hasattr(config, "workerinput") and has_room(MEMORY):
        os.environ.setdefault(FOLDER, str(MEMORY))


def has_room(folder: Path) -> bool:
    """Say whether a file system has room, and runs programs: containers often have neither in memory."""
    if not folder.is_dir():
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= FREE and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
