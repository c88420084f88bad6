"""Files and folders between this machine and a session, as archives that `tar` writes and reads there.

What comes from a session is not trusted: it may say what it likes and writes nothing but below the target.
"""

from __future__ import annotations

import posixpath
import shlex
import tarfile
from contextlib import suppress
from pathlib import Path

from appliance.cli.remote_command import RemoteCommand, running
from appliance.cli.tar_stream import CHUNK, members
from appliance.cli.unpacking import Unpacker
from appliance.client.place import Place
from common.errors import ConflictError, InputError, NotFoundError, ProcessError

NO_PROGRAM = (126, 127)
NOT_THERE = ("No such file", "can't change directory")
"""What `tar` says of what is not there."""


def fetch(place: Place, path: str, target: str) -> None:
    """Copy what is at a path of a session to one of this machine, or into it where that is a folder."""
    folder, name = posixpath.split(_plain(path))
    if name in ("", ".", ".."):
        folder, name = _plain(path), "."
    where = Path(target)
    called = place.session if name == "." else name
    parent, called = (where, called) if where.is_dir() else (where.parent, where.name)
    if not parent.is_dir():
        raise InputError("is no folder", where=str(parent), hint="make it first")
    with running(place, ["tar", "-cf", "-", "-C", folder or "/", "--", name]) as command:
        with Unpacker(parent, name, called) as unpacker:
            for info, content in members(command.read):
                unpacker.take(info, content)
        _check(command, path)
        unpacker.check()


def send(place: Place, path: str, target: str) -> None:
    """Copy what is at a path of this machine to one of a session, or into it where that is a folder."""
    source = Path(path).resolve()
    if not (source.is_file() or source.is_dir()):
        raise InputError("is no file and no folder", where=path, hint="name what is there")
    folder, called = _plain(target), source.name if Path(path).name in ("", "..") else Path(path).name
    if not _is_folder(place, folder):
        if target.endswith("/"):
            raise NotFoundError("is no folder of the session", where=target, hint="make it first")
        folder, called = posixpath.split(folder)
    with running(place, ["tar", "-xf", "-", "-C", folder or "/"]) as command:
        # one that takes no more has a reason, which comes with its exit code
        with (
            suppress(BrokenPipeError),
            tarfile.open(fileobj=command, mode="w|", bufsize=CHUNK, format=tarfile.GNU_FORMAT) as archive,  # type: ignore[call-overload]
        ):
            archive.add(source, called, filter=_anonymous)
        command.end_input()
        _check(command, target)


def _plain(path: str) -> str:
    """Return a path of a session that no program takes for an option, without an end that says nothing."""
    plain = posixpath.normpath(path)
    return plain if plain.startswith("/") else posixpath.join(".", plain)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a member that belongs to whoever unpacks it; None for sockets and the like, which are nobody's to copy."""
    if not (info.isfile() or info.isdir() or info.issym() or info.islnk()):
        return None
    # not `TarInfo.replace`, which Debian's Python 3.11.2 has not
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _is_folder(place: Place, path: str) -> bool:
    with running(place, ["test", "-d", path]) as command:
        return command.exit_code() == 0


def _check(command: RemoteCommand, path: str) -> None:
    """Raise what kept `tar` from its work."""
    code = command.exit_code()
    said = command.errors.decode(errors="replace").strip().splitlines()
    if code in NO_PROGRAM:
        raise ConflictError(
            "the session's image has no `tar`",
            where=path,
            hint=f"use another image, or for a file `penstock exec NAME -- cat {shlex.quote(path)}`",
        )
    if code and any(words in line for line in said for words in NOT_THERE):
        raise NotFoundError("is not there in the session", where=path, hint="look with `penstock exec NAME -- ls`")
    if code:
        reason = said[-1] if said else f"exit code {code}"
        raise ProcessError(f"`tar` in the session failed: {reason}", where=path, hint="part of it may be copied")
