"""Quotas on a tmpfs: a small file system for each container's account, so that none fills the memory of the node."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from common import process
from common.errors import PenstockError

log = structlog.get_logger()

SIZE_KIB = 1280
"""Twice an account, which is written anew beside itself before the container is made."""
FILES = 8
_OPTIONS = f"size={SIZE_KIB}k,nr_inodes={FILES},mode=0755,nosuid,nodev,noexec"


def mount(folder: Path) -> None:
    """Mount a tmpfs of SIZE_KIB on a folder, which is made; where there is one already it stays.

    An agent that may not mount goes on with the folder alone, and says so in its log. Raises OSError where the folder
    cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if os.path.ismount(folder):
        return
    try:
        process.run(["mount", "-t", "tmpfs", "-o", _OPTIONS, "penstock", folder], hint="let root run the agent")
    except PenstockError as error:
        log.warning("an account has no file system of its own and may grow", folder=str(folder), reason=str(error))


def unmount(folder: Path) -> None:
    """Take the tmpfs off a folder, though a process may still be in it; what fails stands in the log."""
    if not os.path.ismount(folder):
        return
    try:
        process.run(["umount", "-l", folder])
    except PenstockError as error:
        log.warning("the file system of an account stays", folder=str(folder), reason=str(error))


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep, and no other file system; what fails stands in the log."""
    if not folder.exists():
        return
    try:
        process.run(["rm", "-rf", "--one-file-system", "--", folder])
    except PenstockError as error:
        log.warning("what a container has left stays", folder=str(folder), reason=str(error))
