"""Hash tables of journals: whether a file may have a value, in two or three reads of a few bytes.

journalctl opens every file and maps it. Where the disk reads ahead by megabytes, as those of a RAID do, a search by it
alone reads most of what is kept, and then finds a request in one file of hundreds.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from pathlib import Path

from api.resources.logs import senders

# https://systemd.io/JOURNAL_FILE_FORMAT
_HEAD = struct.Struct("<8s4xI8x16s64xQQ")
"""Signature, incompatible flags, id of the file, place and size of its hash table."""
_SIGNATURE = b"LPKSHHRH"
_KEYED = 1 << 2
_BUCKET, _WORD = 16, struct.Struct("<Q")
_OBJECT = struct.Struct("<16xQQ")
"""Of an object with data: the hash, and where the next one of the bucket is."""
_MASK = (1 << 64) - 1
MOST = 500
"""So many folders are named to journalctl; where there are more, it looks for itself."""


def patterns(folder: Path, values: Collection[str]) -> list[Path]:
    """Return what journalctl has to look at below the folder of the gathered journals: all, where nothing is named.

    They are folders of nodes, and not files: a file may get its last name in between.
    """
    every, in_one = folder / senders.FILES, Path(senders.FILES).name
    if not values:
        return [every]
    nodes = sorted({path.parent for path in folder.glob(senders.FILES) if may_have(path, values)})
    return [node / in_one for node in nodes] if len(nodes) <= MOST else [every]


def may_have(path: Path, values: Collection[str]) -> bool:
    """Return whether a file has each of the values, `FIELD=value`.

    A file that is gone has none. One that cannot be understood may have anything: journalctl knows more of it.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        signature, flags, key, table, size = _HEAD.unpack(os.pread(file, _HEAD.size, 0))
        if signature != _SIGNATURE or not flags & _KEYED:
            return True
        return all(_has(file, siphash(key, value.encode()), table, size // _BUCKET) for value in values)
    except (OSError, struct.error, ZeroDivisionError, OverflowError):
        return True
    finally:
        os.close(file)


def _has(file: int, wanted: int, table: int, buckets: int) -> bool:
    """Return whether an object of the bucket has the hash; what leads backwards may have it."""
    (place,) = _WORD.unpack(os.pread(file, _WORD.size, table + wanted % buckets * _BUCKET))
    while place:
        found, following = _OBJECT.unpack(os.pread(file, _OBJECT.size, place))
        if found == wanted or 0 < following <= place:
            return True
        place = following
    return False


def siphash(key: bytes, data: bytes) -> int:
    """Return SipHash-2-4 of bytes under a key of 16 bytes (Aumasson and Bernstein, 2012)."""
    low, high = struct.unpack("<QQ", key)
    state = low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D, low ^ 0x6C7967656E657261, high ^ 0x7465646279746573
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (word,) in _WORD.iter_unpack(padded):
        a, b, c, d = _rounds(2, *state[:3], state[3] ^ word)
        state = a ^ word, b, c, d
    a, b, c, d = _rounds(4, state[0], state[1], state[2] ^ 0xFF, state[3])
    return a ^ b ^ c ^ d


def _rounds(count: int, a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    for _ in range(count):
        a = (a + b) & _MASK
        b = _turned(b, 13) ^ a
        a = _turned(a, 32)
        c = (c + d) & _MASK
        d = _turned(d, 16) ^ c
        a = (a + d) & _MASK
        d = _turned(d, 21) ^ a
        c = (c + b) & _MASK
        b = _turned(b, 17) ^ c
        c = _turned(c, 32)
    return a, b, c, d


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK
