"""Storages of a node: whether each of them is there, which the marker at its root says.

Where a storage is not mounted, its root is an empty folder of the node's own disk, and whatever is written there is
lost to everybody else. So a storage has a file at its root with the storage's id, and what has no such file is not it.
Nor does one count as there that can only be read: sessions make folders in it.
A storage that hangs holds up one thread, and who asks for it is answered in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from anyio import CapacityLimiter, to_thread

from common.errors import UnavailableError

log = structlog.get_logger()

MARKER = ".penstock-storage"
"""The file with the id; the roles that write it know it by this name, too."""
LONGEST_ID = 64
ANSWER_S = 3.0
"""How long a storage may take to tell its id."""
INTERVAL_S = 5.0
"""How long a storage that went is unnoticed at most, where nobody asks for it."""


class MissingStorageError(UnavailableError):
    """A storage is not there, and may be on another node, or later."""


@dataclass(frozen=True)
class Storage:
    """A storage of the site: where this node has it, and the id that stands in its marker."""

    name: str
    root: Path
    id: str

    def open(self) -> int:
        """Return its root opened, after a look at the marker in what was opened; raises MissingStorageError."""
        try:
            descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._missing(f"cannot be read: {error.strerror}") from error
        try:
            found = _id_in(descriptor)
            read_only = bool(found) and _is_read_only(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise self._missing(f"cannot be read: {error.strerror}") from error
        if not found or found != self.id:
            os.close(descriptor)
            raise self._missing("is another one than the site's" if found else "is not mounted")
        if read_only:
            os.close(descriptor)
            raise self._missing("is read-only")
        return descriptor

    def reason(self) -> str:
        """Return why it is not there, or nothing."""
        try:
            os.close(self.open())
        except MissingStorageError as error:
            return error.problems[0].reason
        return ""

    def silent(self) -> str:
        """Return that it does not answer."""
        return self._missing("does not answer").problems[0].reason

    def _missing(self, how: str) -> MissingStorageError:
        return missing(self.name, f"the storage {self.name} {how} on this node")


def missing(name: str, reason: str) -> MissingStorageError:
    """Return an error that names a storage and no path of the node, as people of sessions read it."""
    return MissingStorageError(reason, where=f"storage {name}", hint="let the administrator look at the node's mounts")


class Storages:
    """All storages of this node. `missing` says by name why one is not there, as of the last look."""

    def __init__(self, roots: Mapping[str, Path], ids: Mapping[str, str]) -> None:
        """Prepare; one whose id is not known is not there. Nothing is looked at yet."""
        self.missing: dict[str, str] = {}
        self._known = [Storage(name, root, ids.get(name, "")) for name, root in roots.items()]
        self._looks: dict[str, asyncio.Task[str]] = {}
        self._threads = CapacityLimiter(max(1, len(self._known)))

    async def run(self, tell: Callable[[], None]) -> None:
        """Look at all of them again and again, and `tell` when it is not with them as it was."""
        while True:
            before = dict(self.missing)
            await asyncio.gather(*(self._look(storage) for storage in self._known))
            if self.missing != before:
                tell()
            await asyncio.sleep(INTERVAL_S)

    async def check(self, folders: Iterable[Path]) -> None:
        """Refuse folders of a storage that is not there now; raises MissingStorageError."""
        wanted = {storage.name: storage for folder in folders if (storage := self._of(folder))}
        for storage in wanted.values():
            if reason := await self._look(storage):
                raise missing(storage.name, reason)

    def open(self, folder: Path) -> tuple[int, Path] | None:
        """Return the root of the storage in which a folder lies, opened, and its path; None where it lies in none.

        The folder has no links in it. It blocks as long as the storage does; raises MissingStorageError.
        """
        for storage in self._known:
            if folder.is_relative_to(root := storage.root.resolve()):
                return storage.open(), root
        return None

    @contextlib.contextmanager
    def held(self, root: Path) -> Iterator[Path | None]:
        """Give the root of a storage as a path that goes on leading to what was checked; None where it has no storage.

        It blocks as long as the storage does; raises MissingStorageError.
        """
        storage = next((known for known in self._known if known.root == root), None)
        if storage is None:
            yield None
            return
        descriptor = storage.open()
        try:
            # of this process by its number: programs that it starts follow it, too
            yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def is_root(self, folder: Path) -> bool:
        """Return whether a folder without links is the root of a storage, or lies above one."""
        return any(storage.root.resolve().is_relative_to(folder) for storage in self._known)

    def _of(self, folder: Path) -> Storage | None:
        return next((storage for storage in self._known if folder.is_relative_to(storage.root)), None)

    async def _look(self, storage: Storage) -> str:
        """Return why a storage is not there, or nothing, and note it; one look at a time, however long it takes."""
        look = self._looks.get(storage.name)
        if look is None or look.done():
            look = asyncio.create_task(
                to_thread.run_sync(storage.reason, limiter=self._threads, abandon_on_cancel=True)
            )
            self._looks[storage.name] = look
        done, _ = await asyncio.wait({look}, timeout=ANSWER_S)
        reason = look.result() if done else storage.silent()
        if reason != self.missing.get(storage.name, ""):
            log.warning("storage", name=storage.name, reason=reason or "it is there")
        if reason:
            self.missing[storage.name] = reason
        else:
            self.missing.pop(storage.name, None)
        return reason


NO_STORAGES = Storages({}, {})


def _is_read_only(root: int) -> bool:
    """Return whether nobody can write in an open folder, by its marker; root alone may be kept from that one."""
    try:
        os.close(os.open(MARKER, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root))
    except OSError as error:
        return error.errno == errno.EROFS
    return False


def _id_in(root: int) -> str:
    """Return what stands in the marker of an open folder, which is a plain file; empty where there is none."""
    try:
        descriptor = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    except FileNotFoundError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, LONGEST_ID + 1).decode(errors="replace").strip()
    finally:
        os.close(descriptor)
