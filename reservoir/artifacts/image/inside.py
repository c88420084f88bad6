"""A program that changes a root file system from inside of it, so that every link leads where it will lead there.

Run by `reservoir.artifacts.image.root`, with the root as its argument and the changes as JSON on standard input. It
enters the root (chroot) before the first change and starts nothing that lies there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    """Make all changes, in order; what cannot be made is said on standard error."""
    sys.tracebacklimit = 0  # the last line alone
    changes = json.load(sys.stdin)
    os.chroot(sys.argv[1])
    os.chdir("/")
    for change in changes:
        name = change.pop("do")
        try:
            ACTIONS[name](**change)
        except OSError as error:
            raise OSError(f"cannot {name} {error.filename}: {error.strerror}") from None


def write(path: str, content: str, mode: int) -> None:
    """Write a file, with the folders above it: above what a link leads to where it is one."""
    # a Path would end a circle of links with an error of its own
    file = Path(os.path.realpath(Path("/", path.lstrip("/"))))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    file.chmod(mode)


def empty(path: str) -> None:
    """Empty a file, where it is there."""
    file = Path("/", path.lstrip("/"))
    if file.exists():
        file.write_text("")


def folder(path: str) -> None:
    """Make a folder, with those above it."""
    Path("/", path.lstrip("/")).mkdir(parents=True, exist_ok=True)


def remove_all(pattern: str) -> None:
    """Take away all that a pattern matches, and nothing where it matches nothing."""
    for path in list(Path("/").glob(pattern.lstrip("/"))):
        remove(path)


def remove_one(path: str) -> None:
    """Take away what lies at a path, whatever characters it has."""
    remove(Path("/", path.lstrip("/")))


def remove(path: Path) -> None:
    """Take away a file, a link or a whole folder; nothing there is as well."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


ACTIONS: dict[str, Callable[..., None]] = {
    "write": write,
    "empty": empty,
    "make": folder,
    "remove": remove_one,
    "clean": remove_all,
}

if __name__ == "__main__":
    main()
