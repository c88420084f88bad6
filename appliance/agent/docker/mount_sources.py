"""Folders that sessions mount: they lie below the roots of the settings, and no link leads out of those."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from common.errors import InputError, UnavailableError

MODE = 0o770
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def root_of(folder: Path, roots: Sequence[Path]) -> Path | None:
    """Return the root below which a folder lies, without links; None where it lies outside of all."""
    real = _real(folder)
    return next((known for root in roots if real.is_relative_to(known := root.resolve())), None)


def make(folder: Path, roots: Sequence[Path]) -> Path:
    """Make a folder and those above it where they are missing, for their owner and group; return it without links.

    A link that somebody puts in the way meanwhile is not followed. Raises InputError for a folder outside of the roots,
    UnavailableError where the storage refuses.
    """
    root = root_of(folder, roots)
    if root is None:
        raise InputError(f"{folder} is outside of the folders that may be mounted", hint="mount a folder below one")
    real = _real(folder)
    if real.is_file():
        return real
    try:
        descriptor = os.open(root, _OPEN)
        for part in real.relative_to(root).parts:
            descriptor = _enter(descriptor, part)
        os.close(descriptor)
    except OSError as error:
        raise UnavailableError(
            f"the folder cannot be made: {error.strerror}", where=str(folder), hint="check the storage of the node"
        ) from error
    return real


def _real(folder: Path) -> Path:
    """Return a folder without links; raises InputError where they lead in a circle."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{folder} cannot be followed: {error}", hint="remove the links that lead in a circle"
        ) from None


def _enter(descriptor: int, part: str) -> int:
    """Open a folder within an open one, which is closed, after making it where it is missing."""
    made = False
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, MODE, dir_fd=descriptor)
            made = True
        below = os.open(part, _OPEN, dir_fd=descriptor)
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
