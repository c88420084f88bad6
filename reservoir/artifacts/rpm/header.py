"""Headers of RPM: what packages, and the database of those that are installed, say by numbered tags."""

from __future__ import annotations

import binascii
import struct
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"\x8e\xad\xe8\x01"
# more than any real header has, so that a forged length cannot fill the memory
LARGEST = 256 << 20
NAME, VERSION, RELEASE, EPOCH, ARCH, SOURCE_RPM = 1000, 1001, 1002, 1003, 1022, 1044


class MalformedError(Exception):
    """The file is no RPM package."""


# what reading a file that is no package, or a damaged one, ends with
DAMAGED = (MalformedError, struct.error, binascii.Error)


@dataclass(frozen=True)
class Header:
    """A header: its bytes, and where the value of each tag lies in `data`."""

    raw: bytes
    data: bytes
    tags: dict[int, tuple[int, int]]

    def binary(self, tag: int) -> bytes:
        """Return the bytes of a tag; raises KeyError where it has none."""
        offset, count = self.tags[tag]
        return self.data[offset : offset + count]

    def texts(self, tag: int) -> list[bytes]:
        """Return the texts of a tag, one at least; raises MalformedError where there are none."""
        offset, count = self.tags[tag]
        found = self.data[offset:].split(b"\0", min(count, len(self.data)))[:count]
        if not found:
            raise MalformedError(f"the tag {tag} says nothing")
        return found

    def text(self, tag: int) -> str:
        """Return the first text of a tag; nothing where it has none."""
        return self.texts(tag)[0].decode("utf-8", "replace") if tag in self.tags else ""

    def number(self, tag: int) -> int:
        """Return the first number of a tag; raises KeyError where it has none."""
        offset, _ = self.tags[tag]
        return int.from_bytes(self.data[offset : offset + 4])


def read(file: BinaryIO) -> Header:
    """Read the header that begins here; raises MalformedError where it is none."""
    start = file.read(16)
    if len(start) < 16 or not start.startswith(MAGIC):
        raise MalformedError("a header is missing")
    entries, length = struct.unpack(">II", start[8:])
    if 16 * entries + length > LARGEST:
        raise MalformedError("a header is too long")
    index = file.read(16 * entries)
    data = file.read(length)
    if len(index) + len(data) != 16 * entries + length:
        raise MalformedError("it ends too early")
    return _parsed(start + index + data, index, data)


def stored(blob: bytes) -> Header:
    """Return the header that a database keeps, without the words before it; raises MalformedError where it is none."""
    if len(blob) < 8:
        raise MalformedError("a header is missing")
    entries, length = struct.unpack(">II", blob[:8])
    if 8 + 16 * entries + length > len(blob):
        raise MalformedError("it ends too early")
    index = blob[8 : 8 + 16 * entries]
    return _parsed(blob, index, blob[8 + 16 * entries :])


def _parsed(raw: bytes, index: bytes, data: bytes) -> Header:
    return Header(raw, data, {tag: (offset, count) for tag, _, offset, count in struct.iter_unpack(">IIII", index)})
