"""Archives of tar, read as they come: out of a part of a file, or out of what a program writes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO

# far more than any copyright file, or any name in an archive, is long
LARGEST = 16 << 20
NAMES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class Bounded(tarfile.TarInfo):
    """A member of an archive; the names and words before it are read whole, so their size is looked at first."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Bounded:
        """Read a header; raises ValueError where it announces a name that no file has."""
        member = super().frombuf(buf, encoding, errors)
        if member.type in NAMES and member.size > LARGEST:
            raise ValueError(f"a name in the package has {member.size} bytes, {LARGEST} are allowed")
        return member


class Part(io.RawIOBase):
    """So many bytes of a file, from where it stands."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(min(len(buffer), self._left))
        buffer[: len(content)] = content
        self._left -= len(content)
        return len(content)


class Pieces(io.RawIOBase):
    """The output of a program as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
