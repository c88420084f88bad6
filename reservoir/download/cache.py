"""A store of files by their sha256: downloads and built parts, checked on the way in and on the way out."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from common import files, process
from common.errors import IntegrityError, ProcessError, UnavailableError
from common.progress import Progress, silent

CHUNK = 1 << 20
# so many files are not waited for one by one
MANY = 500
# more than the words about who holds a store have
LONGEST = 4096
# how the names of folders begin that last no longer than one build
WORK = "work-"


class Cache:
    """Files below `root` by hash; an unfinished one has the ending `.partial`."""

    def __init__(self, root: Path) -> None:
        """Use the store at `root`, which is made where it is missing."""
        self.root = root
        self.blobs = root / "blobs"
        self.blobs.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def alone(self, progress: Progress = silent) -> Iterator[None]:
        """Wait until no other process builds with this store, and keep others waiting meanwhile.

        `progress` hears who that is. What an interrupted build left of its work goes away; what it finished stays.
        """
        handle = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._hold(handle, progress)
            for left in self.root.glob(f"{WORK}*"):
                shutil.rmtree(left)
            yield
            os.ftruncate(handle, 0)
        finally:
            os.close(handle)

    def _hold(self, handle: int, progress: Progress) -> None:
        """Take the lock, and leave word in its file of who has it."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, LONGEST, 0).decode(errors="replace") or "another build"
            said = "".join(letter if letter.isprintable() else "?" for letter in holder)
            progress(f"wait for {said}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        os.ftruncate(handle, 0)
        os.pwrite(
            handle, f"process {os.getpid()} ({words[:300]}), which has held {self.root} since {since}".encode(), 0
        )

    def path(self, sha256: str) -> Path:
        """Return where the file with that hash lies, or would lie."""
        return self.blobs / sha256

    def partial(self, sha256: str) -> Path:
        """Return where the file is collected until its hash holds."""
        return self.blobs / f"{sha256}.partial"

    @contextmanager
    def collecting(self, sha256: str) -> Iterator[Path]:
        """Wait until nobody else collects the file, keep others waiting, and give the place of the unfinished one."""
        locks = self.root / "locks"
        locks.mkdir(exist_ok=True)
        # few files for all hashes: one for each would stay for ever
        handle = os.open(locks / sha256[:2], os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield self.partial(sha256)
        finally:
            os.close(handle)

    def has(self, sha256: str, size: int) -> bool:
        """Say whether the file is there in full length."""
        path = self.path(sha256)
        return path.is_file() and path.stat().st_size == size

    def accept(self, path: Path, sha256: str, origin: str) -> Path:
        """Move a finished file into the store; raises IntegrityError, and deletes it, where its hash differs."""
        found = digest(path)
        if found != sha256:
            path.unlink()
            raise IntegrityError(
                f"{origin} has the sha256 {found}, not {sha256}",
                where=path.name,
                hint="try again; when it stays, the source changed the file: make a new lock",
            )
        path.chmod(0o444)
        path.replace(self.path(sha256))
        return self.path(sha256)

    def add(self, path: Path) -> tuple[str, int]:
        """Move a file that was made here into the store; return its hash and size in bytes."""
        sha256 = digest(path)
        size = path.stat().st_size
        path.chmod(0o444)
        path.replace(self.path(sha256))
        return sha256, size

    def keep(self, content: bytes) -> tuple[str, int]:
        """Write a small file that was made here into the store; return its hash and size in bytes."""
        sha256 = hashlib.sha256(content).hexdigest()
        if not self.has(sha256, len(content)):
            files.write(self.path(sha256), content, 0o444)
        return sha256, len(content)


def digest(path: Path) -> str:
    """Return the sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reads_as(path: Path, sha256: str) -> bool:
    """Say whether a file of a store has that hash; what the disk does not give has none."""
    try:
        return digest(path) == sha256
    except OSError:
        return False


def pieces(path: Path) -> Iterator[bytes]:
    """Yield a file in pieces."""
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            yield piece


@contextmanager
def space_on(folder: Path, unfinished: Path | None = None) -> Iterator[None]:
    """Turn a full disk below `folder` into an error that says so.

    A folder that is `unfinished` is deleted then: its space is needed for what is good.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        if unfinished:
            shutil.rmtree(unfinished, ignore_errors=True)
        raise UnavailableError(
            f"no space left on the disk of {folder}", where=str(folder), hint="free some space, then run it again"
        ) from error


def flush(paths: Iterable[Path]) -> None:
    """Wait until files and folders are on the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def flush_all(folder: Path) -> None:
    """Wait until a folder, and all that was written below it, is on the disk."""
    flush_together([path for path in (folder, *folder.rglob("*")) if not path.is_symlink()], folder)


def flush_together(paths: Sequence[Path], folder: Path) -> None:
    """Wait until files and folders, all on the file system of `folder`, are on the disk.

    Of many the whole file system is waited for, once; of few it is not, as others write there as well.
    """
    if len(paths) <= MANY:
        flush(paths)
        return
    try:
        process.run(["sync", "--file-system", folder])
    except ProcessError:
        # says which file it was, and whether the disk is full
        flush(paths)
        raise


def link_or_copy(source: Path, destination: Path) -> None:
    """Make `destination` the same file as `source` where both lie on one file system, else a copy of it."""
    try:
        os.link(source, destination)
    except OSError:
        shutil.copyfile(source, destination)
        destination.chmod(0o444)
