"""Limit of disks: while one is nearly full, what can wait has to, so that there is room for what cannot."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from common.errors import UnavailableError


class DiskLimit:
    """Limits the disks that have some folders; a folder that is not there has none."""

    def __init__(self, folders: Iterable[Path], stop_percent: int) -> None:
        """Take note of the folders, and of how full their disks may be."""
        self._folders = tuple(folders)
        self._stop_percent = stop_percent

    def refuse_where_full(self, work: str) -> None:
        """Raise UnavailableError where a disk is fuller than it may be for `work`, which is named in the error."""
        for folder in self._folders:
            if (used := used_percent(folder)) > self._stop_percent:
                raise UnavailableError(
                    f"the disk of {folder} is {used:.0f} % full, and {work} can wait",
                    where=str(folder),
                    hint=f"make room there, or raise `disk.stop_percent` ({self._stop_percent}) in the site file",
                )


NO_DISK = DiskLimit((), 100)
"""Limits nothing."""


def used_percent(folder: Path) -> float:
    """Return how full the disk of a folder is, of bytes or of files, whichever it has less room for.

    Raises UnavailableError where the disk does not answer.
    """
    try:
        found = os.statvfs(folder)
    except (FileNotFoundError, PermissionError):
        return 0.0
    except OSError as error:
        raise UnavailableError(
            f"the disk of {folder} cannot be asked how full it is: {error.strerror}",
            where=str(folder),
            hint="look at `dmesg` and the mount of that folder",
        ) from error
    used = found.f_blocks - found.f_bfree
    # what only root may still write is no room
    return max(_percent(used, used + found.f_bavail), _percent(found.f_files - found.f_ffree, found.f_files))


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
