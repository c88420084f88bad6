"""Folders of volumes: what a storage has of them, what it tells of their sizes, and their removal.

The folder of a volume is `ROOT/ID`, or `ROOT/PROJECT/NAME` where it was there before volumes had ids.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from anyio import CapacityLimiter, to_thread

from appliance.agent.storages import Storages
from appliance.agent.supervision import Background
from common import process
from common.errors import ForbiddenError, InputError, ProcessError, UnavailableError
from common.storage_protocol import FolderRemoval, FolderState, StorageState

log = structlog.get_logger()

MAX_FOLDERS = 100_000
MEASURE_S = 10.0
"""How long one look may take to measure folders; those that it does not come to are measured at another."""
AT_ONCE = 4
"""Most folders that are removed at the same time."""
MIB = 1 << 20
LONGEST_NAME = 20
"""Characters of the longest name that a project may have; ids are longer."""
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@dataclass
class _Removal:
    """A removal that is under way, or has failed; `error` is how it did, this time or before."""

    error: str = ""
    running: bool = True


class VolumeFolders:
    """The folders below the roots that sessions may mount."""

    def __init__(self, roots: Sequence[Path], storages: Storages) -> None:
        """Begin with nothing to remove; only of a root of these `storages` is it known whether it is mounted."""
        self._roots = roots
        self._storages = storages
        self._removals: dict[Path, _Removal] = {}
        self._background = Background()
        self._limiter = CapacityLimiter(AT_ONCE)
        self._looks = CapacityLimiter(AT_ONCE)

    async def look(self, root: Path) -> StorageState:
        """Return what there is below a root; raises ForbiddenError where that is none of this node's."""
        if root not in self._roots:
            raise _not_here(root)
        await self._storages.check([root])
        return await to_thread.run_sync(self._look, root, limiter=self._looks, abandon_on_cancel=True)

    async def remove(self, folder: Path) -> FolderRemoval:
        """Begin to remove a folder, or tell how far that is; what failed is tried again, and told until it is done.

        Raises MissingStorageError where the storage is not there: then nothing is known of the folder.
        """
        root = self._root_of(folder)
        known = self._removals.get(folder)
        if known is not None and known.running:
            return FolderRemoval(there=True, error=known.error)
        await self._storages.check([root])
        found = await to_thread.run_sync(self._find, folder, root, limiter=self._looks, abandon_on_cancel=True)
        if not found.there:
            self._removals.pop(folder, None)
            return found
        removal = self._removals[folder] = _Removal(known.error if known else "")
        self._background.begin(self._remove(folder, root, removal))
        return FolderRemoval(there=True, error=removal.error)

    async def close(self) -> None:
        """Let go of what is under way; who asks the next agent for it lets it go on."""
        await self._background.close()

    def _root_of(self, folder: Path) -> Path:
        root = next((root for root in self._roots if folder.is_relative_to(root)), None)
        if root is None:
            raise _not_here(folder)
        return root

    def _find(self, folder: Path, root: Path) -> FolderRemoval:
        """Return whether a folder is there; raises InputError where it is none of a volume."""
        with self._storages.held(root) as held:
            below = folder.relative_to(root)
            _check(below, held or root)
            return FolderRemoval(there=os.path.lexists((held or root) / below), mounted=held is not None)

    def _look(self, root: Path) -> StorageState:
        with self._storages.held(root) as held:
            return _look(held or root, mounted=held is not None)

    async def _remove(self, folder: Path, root: Path, removal: _Removal) -> None:
        try:
            await to_thread.run_sync(self._remove_now, folder, root, limiter=self._limiter, abandon_on_cancel=True)
            log.info("volume removed", folder=str(folder))
        except (ProcessError, UnavailableError) as error:
            removal.error = error.problems[0].reason
            log.warning("a volume cannot be removed", folder=str(folder), reason=removal.error)
        finally:
            removal.running = False

    def _remove_now(self, folder: Path, root: Path) -> None:
        with self._storages.held(root) as held:
            _remove(folder.relative_to(root), held or root)


def _remove(below: Path, root: Path) -> None:
    """Remove a folder, which may be deeper than a process of ours could follow; links in it are not."""
    process.run(["rm", "-rf", "--one-file-system", "--", below], cwd=root, hint="look at the storage")


def _check(below: Path, root: Path) -> None:
    """Refuse what cannot be the folder of a volume, by its path below the root; raises InputError."""
    parts = below.parts
    if len(parts) not in (1, 2) or not all(NAME.fullmatch(part) for part in parts):
        raise InputError(f"{below} is not the folder of a volume", where="folder", hint="name ROOT/ID")
    if any((root / Path(*parts[:depth])).is_symlink() for depth in range(1, len(parts))):
        raise InputError(f"a link leads to {below}", where="folder", hint="look at the storage")


def _look(root: Path, *, mounted: bool) -> StorageState:
    try:
        found = list(_folders(root))[:MAX_FOLDERS]
        here = os.statvfs(root)
    except OSError as error:
        raise UnavailableError(
            f"the storage cannot be read: {error.strerror}", where="storage", hint="check the storage of the node"
        ) from error
    sizes: dict[Path, tuple[int | None, int | None]] = {}
    until = time.monotonic() + MEASURE_S
    # in another order each time, so that each is measured some day
    for folder in random.sample(found, len(found)):
        if time.monotonic() < until:
            sizes[folder] = measure(folder, here, until)
    nothing = (None, None)
    return StorageState(
        mounted=mounted,
        folders=[
            FolderState(folder=str(folder.relative_to(root)), used_mib=used, limit_mib=limit)
            for folder in found
            for used, limit in [sizes.get(folder, nothing)]
        ],
    )


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders that may be those of volumes."""
    for entry in sorted(_entries(root), key=lambda entry: entry.name):
        if len(entry.name) > LONGEST_NAME:
            yield Path(entry)
        else:
            yield from sorted(Path(inner) for inner in _entries(Path(entry)))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.is_dir(follow_symlinks=False) and NAME.fullmatch(entry.name)]


def measure(folder: Path, root: os.statvfs_result, until: float) -> tuple[int | None, int | None]:
    """Return how many MiB a folder has and may have, as its storage tells; None where it does not.

    A storage that limits folders shows each as a file system of its own, or has attributes for them (CephFS). Any other
    is counted, file by file, until a moment.
    """
    try:
        own = os.statvfs(folder)
        if own.f_blocks != root.f_blocks:
            return (own.f_blocks - own.f_bfree) * own.f_frsize // MIB, own.f_blocks * own.f_frsize // MIB
        if (used := _attribute(folder, "ceph.dir.rbytes")) is not None:
            return used // MIB, (_attribute(folder, "ceph.quota.max_bytes") or 0) // MIB or None
        return _counted(folder, until), None
    except OSError:
        return None, None


def _attribute(folder: Path, name: str) -> int | None:
    try:
        return int(os.getxattr(folder, name, follow_symlinks=False))
    except (OSError, ValueError):
        return None


def _counted(folder: Path, until: float) -> int | None:
    """Return the MiB that the files of a folder take; None where that takes too long to find out."""
    device, seen, blocks = folder.lstat().st_dev, set[int](), 0
    folders: list[str | Path] = [folder]
    while folders:
        if time.monotonic() > until:
            return None
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue  # it went meanwhile
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if status.st_dev != device or (status.st_nlink > 1 and status.st_ino in seen and not entry.is_dir()):
                continue
            seen |= {status.st_ino} if status.st_nlink > 1 else set()
            blocks += status.st_blocks
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
    return blocks * 512 // MIB


def _not_here(folder: Path) -> ForbiddenError:
    return ForbiddenError(f"this node has no storage at {folder}", where="folder", hint="ask another node")
