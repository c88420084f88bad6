"""Folders that sessions mount: they lie below the roots of the settings, and no link leads out of those."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from common.errors import InputError, UnavailableError

MODE = 0o770
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def root_of(folder: Path, roots: Sequence[Path]) -> Path | None:
    """Return the root below which a folder lies, without links; None where it lies outside of all."""
    return _root_of(_real(folder), roots)


def make(folder: Path, roots: Sequence[Path]) -> int:
    """Make a folder and those above it where they are missing, for their owner and group; return it opened.

    What is opened lies below a root, whatever becomes of its path: a link that somebody puts in the way meanwhile is
    not followed. A file that is there is opened too. Raises InputError for a folder outside of the roots,
    UnavailableError where the storage refuses.
    """
    real = _real(folder)
    if (root := _root_of(real, roots)) is None:
        raise InputError(f"{folder} is outside of the folders that may be mounted", hint="mount a folder below one")
    try:
        descriptor = _open(root)
        for part in real.relative_to(root).parts:
            descriptor = _enter(descriptor, part)
    except OSError as error:
        raise UnavailableError(
            f"the folder cannot be made: {error.strerror}", where=str(folder), hint="check the storage of the node"
        ) from error
    return descriptor


def _root_of(real: Path, roots: Sequence[Path]) -> Path | None:
    return next((known for root in roots if real.is_relative_to(known := root.resolve())), None)


def _real(folder: Path) -> Path:
    """Return a folder without links; raises InputError where they lead in a circle."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{folder} cannot be followed: {error}", hint="remove the links that lead in a circle"
        ) from None


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
