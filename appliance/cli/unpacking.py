"""Members of an archive as files below one folder, and nowhere else.

Every step from the folder down is taken without following links, so that no member leads another one out. Links are
made where they stay inside: relative, and up only as far as the folders that are there lead.
"""

from __future__ import annotations

import os
import secrets
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from appliance.cli.output import plain
from common.errors import InputError, IntegrityError, Problem

MAX_NAMED = 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER = stat.S_IRWXU


class Unpacker:
    """Writes members whose names begin with `first` below a folder, where they are called `called` instead."""

    def __init__(self, folder: Path, first: str, called: str) -> None:
        """Begin; nothing is written yet."""
        self._folder = folder
        self._first = [] if first == "." else [first]
        self._called = called
        self._left_out: list[str] = []
        self._taken = False
        self._folders: list[tuple[list[str], tarfile.TarInfo]] = []

    def __enter__(self) -> Unpacker:
        """Hold the folder, wherever its name leads later."""
        self._top = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give folders their modes and times, which what was written into them has changed."""
        try:
            for parts, info in reversed(self._folders):
                with suppress(OSError):
                    self._finish_folder(parts, info)
        finally:
            os.close(self._top)

    def take(self, info: tarfile.TarInfo, content: Iterator[bytes]) -> None:
        """Write a member; raises IntegrityError for a name that leads out."""
        parts = self._parts(info.name)
        self._taken = True
        try:
            self._write(parts, info, content)
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}",
                where=str(self._folder.joinpath(*parts)),
                hint="look at what is there",
            ) from error

    def check(self) -> None:
        """Raise InputError that names what was left out, where anything was; IntegrityError where nothing came."""
        if not self._taken:
            raise IntegrityError("the session sent nothing", where="tar", hint="try again")
        refuse_left_out(self._left_out, "links that could lead out of what is copied, devices and pipes are not")

    def _parts(self, name: str) -> list[str]:
        """Return the steps from the folder to a member."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or parts[: len(self._first)] != self._first:
            raise IntegrityError(
                f"the session sent {name!r}, which is outside of what was asked for",
                where="tar",
                hint="do not trust this session",
            )
        return [self._called, *parts[len(self._first) :]]

    def _write(self, parts: Sequence[str], info: tarfile.TarInfo, content: Iterator[bytes]) -> None:
        *folders, name = parts
        inside = info.isdir() or info.isreg() or (info.issym() and self._stays(info.linkname, len(folders)))
        if not inside and not info.islnk():
            self._left_out.append("/".join(parts))
            return
        parent = self._open(folders)
        try:
            if info.isdir():
                self._make_folder(parent, name)
                self._folders.append((list(parts), info))
                return
            if info.isreg():
                self._write_file(parent, name, info, content)
                return
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            if info.issym():
                os.symlink(info.linkname, name, dir_fd=parent)
            elif not self._link(self._parts(info.linkname), parent, name):
                self._left_out.append("/".join(parts))
        finally:
            os.close(parent)

    def _stays(self, target: str, depth: int) -> bool:
        """Return whether a link, so many folders down, leads to what is copied: up first, and then only down."""
        steps = [step for step in target.split("/") if step not in ("", ".")]
        up = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
        return not target.startswith("/") and ".." not in steps[up:] and up < depth

    def _open(self, folders: Sequence[str]) -> int:
        """Return the folder at the end of some steps; those that are missing are made."""
        found = os.dup(self._top)
        for step in folders:
            try:
                self._make_folder(found, step)
                found, above = os.open(step, _FOLDER, dir_fd=found), found
            except OSError:
                os.close(found)
                raise
            os.close(above)
        return found

    @staticmethod
    def _make_folder(parent: int, name: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(name, _OWNER, dir_fd=parent)
            return
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise NotADirectoryError(20, "something else is there already")

    def _link(self, source: Sequence[str], parent: int, name: str) -> bool:
        """Link a file that is there under one more name; what is a link itself would lead elsewhere from there."""
        *folders, last = source
        there = self._open(folders)
        try:
            if not stat.S_ISREG(os.stat(last, dir_fd=there, follow_symlinks=False).st_mode):
                return False
            os.link(last, name, src_dir_fd=there, dst_dir_fd=parent, follow_symlinks=False)
            return True
        finally:
            os.close(there)

    @staticmethod
    def _write_file(parent: int, name: str, info: tarfile.TarInfo, content: Iterator[bytes]) -> None:
        """Write a file, which has its name when it is whole."""
        part = f".{secrets.token_hex(8)}.part"
        file = os.open(part, _FILE, 0o600, dir_fd=parent)
        try:
            with os.fdopen(file, "wb") as writing:
                for chunk in content:
                    writing.write(chunk)
                writing.flush()
                os.fchmod(file, info.mode & 0o777)
                _set_time(file, info.mtime)
            os.rename(part, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            os.unlink(part, dir_fd=parent)
            raise

    def _finish_folder(self, parts: Sequence[str], info: tarfile.TarInfo) -> None:
        folder = self._open(parts)
        try:
            os.fchmod(folder, info.mode & 0o777)
            _set_time(folder, info.mtime)
        finally:
            os.close(folder)


def _set_time(file: int, mtime: float) -> None:
    """Set a time that this machine can have; what claims another one keeps the time when it came."""
    with suppress(OSError, OverflowError, ValueError):
        os.utime(file, (mtime, mtime))


def refuse_left_out(names: Sequence[str], hint: str) -> None:
    """Raise InputError that names what was left out of a copy, where anything was."""
    if not names:
        return
    named = [Problem(plain(name), "was left out", "") for name in names[:MAX_NAMED]]
    if len(names) > MAX_NAMED:
        named.append(Problem("", f"and {len(names) - MAX_NAMED} more", ""))
    raise InputError.of([*named[:-1], Problem(named[-1].where, named[-1].reason, hint)])
