"""Mount points at which Docker finds the folders of a session, mounted from what was checked; no session reaches them.

Docker follows a path anew when it mounts it, and a session that may write above the folder could have put a link there
meanwhile. So what was opened and checked is mounted below a folder of the agent's own, by its descriptor, and Docker
is told that path. A container has mounts of its own once it was started: then these are taken off again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import structlog

from appliance.agent.docker import mount_sources
from appliance.agent.storages import NO_STORAGES, Storages
from common.errors import UnavailableError

log = structlog.get_logger()

# of <sys/mount.h>
_NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = (1 << bit for bit in (1, 2, 3, 5, 12, 14, 18))
_RELATIME = 1 << 21
_KEPT = os.ST_RDONLY | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
"""What a mount says of itself by the same bits by which it is asked for."""
_DETACH, _NOFOLLOW = 1 << 1, 1 << 3


class MountPoints:
    """The mounts of containers that have not been started yet, each below a folder with the container's id."""

    def __init__(self, folder: Path, roots: Sequence[Path], storages: Storages = NO_STORAGES) -> None:
        """Prepare to mount below `folder` what lies below `roots`, in `storages` or not; nothing is done yet."""
        self.roots = roots
        self._storages = storages
        self._folder = folder

    def begin(self) -> None:
        """Make the folder, or take up that of an agent before; raises UnavailableError where that may not be mounted.

        It is a file system of its own: a Docker that does not see what this process mounts finds no folder at all, and
        refuses.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.ismount(self._folder):
            _mount("tmpfs", self._folder, _NOSUID | _NODEV | _NOEXEC, "tmpfs", b"mode=0700,size=1m")

    def close(self) -> None:
        """Take the folder off, unless a container waits for its start: the next agent collects what is left."""
        _libc().umount2(os.fsencode(self._folder), _NOFOLLOW)

    def hold(self, identity: str, sources: Sequence[Path]) -> list[Path]:
        """Make folders where they are missing, and return where each one is mounted until `release`.

        What an attempt before has left goes first. Raises InputError and UnavailableError as `mount_sources.make` does.
        """
        self.release(identity)
        held = []
        try:
            for position, source in enumerate(sources):
                held.append(self._folder / identity / str(position))
                descriptor = mount_sources.make(source, self.roots, self._storages)
                try:
                    _place(descriptor, held[-1])
                    _mount(f"/proc/self/fd/{descriptor}", held[-1], _BIND | _RECURSIVE)
                    _take_rights(held[-1])
                finally:
                    os.close(descriptor)
        except BaseException:
            self.release(identity)
            raise
        return held

    def release(self, identity: str) -> None:
        """Take off what is mounted for a container; nothing happens where nothing is. What fails stands in the log."""
        folder = self._folder / identity
        if not folder.is_dir():
            return
        try:
            for place in folder.iterdir():
                _unmount(place)
                # a place that something is mounted on does not go
                place.rmdir() if place.is_dir() else place.unlink()
            folder.rmdir()
        except (OSError, UnavailableError) as error:
            log.warning("what a container mounts stays in its place", folder=str(folder), reason=str(error))

    def sweep(self, is_needed: Callable[[str], bool]) -> None:
        """Release what is mounted for others, by agents of before too."""
        for folder in [*self._folder.iterdir()] if self._folder.is_dir() else []:
            # asked for each anew: others may begin meanwhile
            if not is_needed(folder.name):
                self.release(folder.name)


def _place(descriptor: int, target: Path) -> None:
    """Make an empty file or folder, to mount on it what is open."""
    target.parent.mkdir(mode=0o700, exist_ok=True)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        target.mkdir(mode=0)
    else:
        target.touch(mode=0)


def _mount(source: str, target: Path, flags: int, kind: str = "none", options: bytes = b"") -> None:
    if _libc().mount(source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options):
        raise _refused("cannot be mounted", target)
    if flags & _BIND:
        _keep_apart(target)


def _take_rights(target: Path) -> None:
    """Let programs that lie there give nobody rights, and devices be none; all else stays as it is mounted."""
    flags = os.statvfs(target).f_flag
    kept = flags & _KEPT | (_RELATIME if flags & os.ST_RELATIME else 0)
    _mount("none", target, _REMOUNT | _BIND | _NOSUID | _NODEV | kept)


def _unmount(target: Path) -> None:
    """Take off what is mounted, if anything is."""
    try:
        _keep_apart(target)
    except UnavailableError:
        if ctypes.get_errno() == errno.EINVAL:
            return
        raise
    if _libc().umount2(os.fsencode(target), _DETACH | _NOFOLLOW):
        raise _refused("cannot be unmounted", target)


def _keep_apart(target: Path) -> None:
    """Let what is taken off here, with all that is mounted in it, stay where it came from."""
    if _libc().mount(b"none", os.fsencode(target), None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None):
        raise _refused("cannot be mounted apart", target)


def _refused(what: str, target: Path) -> UnavailableError:
    reason = os.strerror(ctypes.get_errno())
    log.warning(f"a place of a mount {what}", place=str(target), reason=reason)
    return UnavailableError(f"what it mounts {what}: {reason}", where="mounts", hint="let root run the agent")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
