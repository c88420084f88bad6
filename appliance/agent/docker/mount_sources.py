"""Folders that sessions mount: they lie below the roots of the settings, and no link leads out of those."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import structlog

from appliance.agent.storages import NO_STORAGES, Storages
from common.errors import InputError, UnavailableError

log = structlog.get_logger()

MODE = 0o770
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def root_of(folder: Path, roots: Sequence[Path]) -> Path | None:
    """Return the root below which a folder without links lies, without links; None where it lies outside of all."""
    return next((known for root in roots if folder.is_relative_to(known := root.resolve())), None)


def real(folder: Path) -> Path:
    """Return a folder without links; raises InputError where they lead in a circle."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError):
        raise InputError("links lead in a circle", where="mounts", hint="remove the links of the volume") from None


def make(folder: Path, roots: Sequence[Path], storages: Storages = NO_STORAGES) -> int:
    """Make a folder and those above it where they are missing, for their owner and group; return it opened.

    What is opened lies below a root, whatever becomes of its path: a link that somebody puts in the way meanwhile is
    not followed. Of a storage it is the root that has the storage's marker. A file that is there is opened too. Raises
    InputError for a folder outside of the roots, UnavailableError where the storage refuses or is not there.
    """
    wanted = real(folder)
    if (root := root_of(wanted, roots)) is None:
        raise InputError("it is outside of the folders that may be mounted", where="mounts", hint="mount one below one")
    try:
        descriptor, root = storages.open(wanted) or (_open(root), root)
        for part in wanted.relative_to(root).parts:
            descriptor = _enter(descriptor, part)
    except OSError as error:
        log.warning("a folder cannot be made", folder=str(folder), reason=error.strerror)
        reason = f"a folder that it mounts cannot be made: {error.strerror}"
        raise UnavailableError(reason, where="mounts", hint="check the storage of the node") from error
    return descriptor


def _enter(descriptor: int, part: str) -> int:
    """Open a folder, or a file, within an open folder, which is closed, after making it where it is missing."""
    made = False
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, MODE, dir_fd=descriptor)
            made = True
        below = _open(part, descriptor)
    finally:
        os.close(descriptor)
    if made:
        try:
            # whatever the mask of the process takes away
            os.fchmod(below, MODE)
        except OSError:
            os.close(below)
            raise
    return below


def _open(path: Path | str, within: int | None = None) -> int:
    """Open a folder or a plain file, and no link; raises OSError."""
    try:
        return os.open(path, _FOLDER, dir_fd=within)
    except NotADirectoryError:
        descriptor = os.open(path, _FILE, dir_fd=within)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise
        return descriptor
