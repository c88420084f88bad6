"""The one writer of files that must never be found half written, and the space that linked files take."""

from __future__ import annotations

import glob
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

# bytes, on every file system that we write to
LONGEST_NAME = 255
DEVICES = Path("/dev")
# what the name of an unfinished file holds, and no other name
BESIDE = ".unfinished-"


def sweep(folder: Path, begins: str = "") -> None:
    """Delete what interrupted writes left in a folder, of the files whose names begin so.

    Nobody may be writing these meanwhile.
    """
    for stray in folder.glob(f".{glob.escape(begins)}*{BESIDE}*"):
        stray.unlink()


def write(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """Write a file beside, wait until it is on the disk, and give it its name: readers see the old one or the new one.

    Text is written as UTF-8. An interruption leaves the old file; raises OSError with its path where there is no
    space or no right.
    A device or a pipe, such as `/dev/stdout`, gets the content and stays what it is.
    """
    if path.parent == DEVICES or (path.exists() and not path.is_file()):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return
    with _named(path), NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}{BESIDE}", delete=False) as file:
        beside = Path(file.name)
        try:
            os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Put the path into an error of the system that has none, as of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@dataclass(frozen=True)
class Space:
    """Bytes of files, each counted once whatever names it has: `own` have no name elsewhere, `shared` have."""

    own: int
    shared: int


def space(paths: Iterable[Path]) -> Space:
    """Return the space of the files at or below some paths; what vanishes meanwhile does not count."""
    names: Counter[tuple[int, int]] = Counter()
    known: dict[tuple[int, int], os.stat_result] = {}
    for top in paths:
        for path in _below(top):
            with suppress(FileNotFoundError):
                file = os.lstat(path)
                if not stat.S_ISDIR(file.st_mode):
                    names[file.st_dev, file.st_ino] += 1
                    known[file.st_dev, file.st_ino] = file
    own = sum(file.st_size for inode, file in known.items() if names[inode] >= file.st_nlink)
    return Space(own, sum(file.st_size for file in known.values()) - own)


def _below(top: Path) -> Iterator[str]:
    """Yield a path and all below it; a link is not followed, and a folder that vanishes meanwhile is passed by."""
    yield str(top)
    if not top.is_symlink():
        for folder, folders, names in os.walk(top):
            yield from (f"{folder}/{name}" for name in (*folders, *names))
