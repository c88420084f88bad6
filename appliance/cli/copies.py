"""Files and folders between this machine and a session, as archives that `tar` writes and reads there.

What comes from a session is not trusted: it may say what it likes and writes nothing but below the target.
"""

from __future__ import annotations

import os
import posixpath
import shlex
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from appliance.cli.output import plain
from appliance.cli.remote_command import RemoteCommand, running
from appliance.cli.tar_stream import CHUNK, members
from appliance.cli.unpacking import Unpacker, refuse_left_out
from appliance.client.place import Place
from common.errors import ConflictError, InputError, NotFoundError, ProcessError

NO_PROGRAM = (126, 127)
LOOK = """
path=$1 into=
if [ -d "$path" ]; then path=$path/$2 into=yes; fi
echo "$into"
if [ -L "$path" ] && [ "$3" "$path" ]; then readlink -f "$path"
elif [ "$3" "$path" ] || ! { [ -e "$path" ] || [ -L "$path" ]; }; then printf '%s\\n' "$path"
fi
"""
"""Says whether the target is a folder, and where to write; nothing where something else is."""
MAX_PATH = 1 << 14
NOT_THERE = ("No such file", "can't change directory")
"""What `tar` says of what is not there."""


class _Archive(tarfile.TarFile):
    """An archive of files, folders and links that belong to whoever unpacks it; all else is left out by name."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Begin; nothing is left out yet."""
        self.left_out: list[str] = []
        super().__init__(*arguments, **options)

    def gettarinfo(self, name: Any = None, arcname: Any = None, fileobj: Any = None) -> Any:
        """Return what the archive says of a path; None for devices, pipes and sockets."""
        info: tarfile.TarInfo | None = super().gettarinfo(name, arcname, fileobj)
        if info is None or not (info.isfile() or info.isdir() or info.issym() or info.islnk()):
            self.left_out.append(str(name))
            return None
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info


def fetch(place: Place, path: str, target: str) -> None:
    """Copy what is at a path of a session to one of this machine, or into it where that is a folder."""
    folder, name = posixpath.split(_plain(path))
    if name in ("", ".", ".."):
        folder, name = _plain(path), "."
    where = Path(target)
    called = place.session if name == "." else name
    parent, called = (where, called) if where.is_dir() else (where.parent, where.name)
    for needed in (target, str(parent)) if target.endswith("/") else (str(parent),):
        if not Path(needed).is_dir():
            raise InputError("is no folder", where=needed, hint="make it first")
    with running(place, ["tar", "-cf", "-", "-C", folder or "/", "--", name]) as command:
        with Unpacker(parent, name, called) as unpacker:
            for info, content in members(command.read):
                unpacker.take(info, content)
        hint = "look with `penstock exec NAME -- ls`"
        _check(command, path, NotFoundError("is not there in the session", where=path, hint=hint))
        unpacker.check()


def send(place: Place, path: str, target: str) -> None:
    """Copy what is at a path of this machine to one of a session, or into it where that is a folder."""
    source = Path(path).resolve()
    if not (source.is_file() or source.is_dir()):
        raise InputError("is no file and no folder", where=path, hint="name what is there")
    called = source.name if Path(path).name in ("", "..") else Path(path).name
    folder, called = posixpath.split(_look(place, target, called, source))
    with running(place, ["tar", "-xf", "-", "-C", folder]) as command:
        # one that takes no more has a reason, which comes with its exit code
        with (
            suppress(BrokenPipeError),
            _Archive.open(fileobj=command, mode="w|", bufsize=CHUNK, format=tarfile.GNU_FORMAT) as archive,  # type: ignore[call-overload]
        ):
            archive.add(source, called)
        command.end_input()
        _check(command, target, _no_folder(folder))
    refuse_left_out(archive.left_out, "devices, pipes and sockets are not copied")


def _look(place: Place, target: str, called: str, source: Path) -> str:
    """Return where a file or folder is written so that a link stays one, and all else but files and folders, too."""
    path = _plain(target)
    with running(place, ["sh", "-c", LOOK, "sh", path, called, "-d" if source.is_dir() else "-f"]) as command:
        into, real = os.fsdecode(command.read(MAX_PATH)).removesuffix("\n").partition("\n")[::2]
        _check(command, target, _no_folder(target))
    if target.endswith("/") and not into:
        raise _no_folder(target)
    if not real:
        where = posixpath.join(path, called) if into else path
        raise InputError("something else is there already", where=where, hint="look at what is there")
    return real


def _plain(path: str) -> str:
    """Return a path of a session that no program takes for an option, without an end that says nothing."""
    plain = posixpath.normpath(path)
    return plain if plain.startswith("/") else posixpath.join(".", plain)


def _no_folder(path: str) -> NotFoundError:
    return NotFoundError("is no folder of the session", where=path, hint="make it first")


def _check(command: RemoteCommand, path: str, not_there: NotFoundError) -> None:
    """Raise what kept `tar` from its work; what it says first is the reason, and the rest follows from that."""
    code = command.exit_code()
    said = command.errors.decode(errors="replace").strip().splitlines()
    if code in NO_PROGRAM:
        raise ConflictError(
            "the session's image has no `tar`",
            where=path,
            hint=f"use another image, or for a file `penstock exec NAME -- cat {shlex.quote(path)}`",
        )
    if code and any(words in line for line in said for words in NOT_THERE):
        raise not_there
    if code:
        reason = plain(said[0]) if said else f"exit code {code}"
        raise ProcessError(f"`tar` in the session failed: {reason}", where=path, hint="part of it may be copied")
