"""Disks of their own size, in memory."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Disk:
    """A disk that may grow."""

    folder: Path

    def used(self) -> int:
        """Bytes that are taken."""
        return shutil.disk_usage(self.folder).used

    def resize(self, size: int) -> None:
        """Make it bigger or smaller."""
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=True)


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Disk]:
    """Mount a disk of a size, such as `20m`, at an empty folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    yield Disk(folder)
    subprocess.run(["umount", folder], check=True)
