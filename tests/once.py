"""What is made once for all processes of a run."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = "PENSTOCK_TESTS_FOLDER"
"""Environment variable by which the processes of a run know the folder that they share."""


def begin() -> Path:
    """Make the folder of a run, open to every user; its path is short, for a socket's may have 107 characters."""
    folder = tempfile.mkdtemp(prefix="penstock-tests-")
    Path(folder).chmod(0o755)
    os.environ[FOLDER] = folder
    return Path(folder)


def end() -> None:
    """Remove the folder of a run."""
    shutil.rmtree(os.environ.pop(FOLDER))


def folder() -> Path:
    """Return the folder of this run."""
    return Path(os.environ[FOLDER])


def take(name: str) -> None:
    """Take what has a name for this process alone; raises FileExistsError where one of this run has it."""
    (folder() / name).touch(exist_ok=False)


def once(name: str, fill: Callable[[Path], object]) -> Path:
    """Return the folder of a name, which is filled for the first process that asks."""
    made = folder() / name
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            new = Path(tempfile.mkdtemp(dir=folder()))
            new.chmod(0o755)
            fill(new)
            new.rename(made)
    return made
