"""Tar archives as they come from somebody who may mean harm: read one member at a time, of which headers are short.

The standard library's reader takes a header as long as the archive says into memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator

from common.errors import IntegrityError

BLOCK = tarfile.BLOCKSIZE
MAX_HEADER = 1 << 20
"""Bytes of all that headers tell of one member."""
CHUNK = 1 << 18
TOLD = ("path", "linkpath", "size", "mtime")
"""What is taken of extended headers."""

Read = Callable[[int], bytes]
"""Returns so many bytes, fewer where they end."""


def members(read: Read) -> Iterator[tuple[tarfile.TarInfo, Iterator[bytes]]]:
    """Yield what an archive has, with the content; what is not read of that is passed over. Raises IntegrityError."""
    told: dict[str, str] = {}
    left = MAX_HEADER
    while (block := read(BLOCK)) and any(block):
        info = _header(block)
        if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            told |= _records(_short(read, info, left))
        elif info.type == tarfile.XGLTYPE:
            _short(read, info, left)
        elif info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            key = "path" if info.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
            told[key] = _text(_short(read, info, left).rstrip(b"\0"))
        else:
            _complete(info, told)
            told, left = {}, MAX_HEADER
            content = _content(read, info.size if info.isreg() else 0)
            yield info, content
            for _ in content:
                pass
            continue
        left -= info.size
    # tar fills its last block up, and would not end well if nobody took that
    while read(CHUNK):
        pass


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise _broken(str(error)) from error


def _complete(info: tarfile.TarInfo, told: dict[str, str]) -> None:
    """Give a member what headers before its own have told of it."""
    try:
        info.name = told.get("path", info.name)
        info.linkname = told.get("linkpath", info.linkname)
        info.size = int(told.get("size", info.size))
        info.mtime = float(told.get("mtime", info.mtime))
    except ValueError as error:
        raise _broken(str(error)) from error
    if info.size < 0 or "\0" in info.name + info.linkname:
        raise _broken("a header says what cannot be")


def _short(read: Read, info: tarfile.TarInfo, left: int) -> bytes:
    """Return the content of a header that tells of the next member, of which only so many bytes are `left`."""
    if info.size > left:
        raise _broken(f"a header of {info.size} bytes")
    return b"".join(_content(read, info.size))


def _content(read: Read, size: int) -> Iterator[bytes]:
    left = size
    while left:
        chunk = read(min(CHUNK, left))
        if not chunk:
            raise _broken("it ends in the middle of a file")
        left -= len(chunk)
        yield chunk
    read(-size % BLOCK)


def _records(data: bytes) -> dict[str, str]:
    """Return what an extended header tells: `LENGTH KEY=VALUE` and a new line, again and again."""
    found = {}
    while data:
        length, space, _ = data.partition(b" ")
        if not space or not length.isdigit() or not len(length) < int(length) <= len(data):
            raise _broken("an extended header that cannot be read")
        record, data = data[len(length) + 1 : int(length) - 1], data[int(length) :]
        key, _, value = record.partition(b"=")
        if _text(key) in TOLD:
            found[_text(key)] = _text(value)
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _broken(why: str) -> IntegrityError:
    return IntegrityError(f"what comes from the session is no archive: {why}", where="tar", hint="try again")
