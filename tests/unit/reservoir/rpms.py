"""Small real RPM packages for tests: headers that rpm itself reads, without a program that builds them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from reservoir.artifacts.rpm.header import ARCH, MAGIC, NAME, RELEASE, VERSION

SUMMARY, DESCRIPTION, VENDOR, LICENCE, URL, SYSTEM = 1004, 1005, 1011, 1014, 1020, 1021
NUMBER, TEXT, BINARY, TRANSLATED = 4, 6, 7, 9
SIGNED_SIZE = 1000
# the first tag of each header, which says how much of it is one piece
OF_SIGNATURES, OF_PACKAGE = 62, 63


def write(path: Path, more: Mapping[int, bytes] = MappingProxyType({}), payload: bytes = b"payload") -> Path:
    """Write the package `tool-1-1.noarch` that says `more` by the numbers of tags."""
    words = {
        NAME: b"tool",
        VERSION: b"1",
        RELEASE: b"1",
        ARCH: b"noarch",
        SUMMARY: b"a tool",
        DESCRIPTION: b"for tests",
    }
    words |= {LICENCE: b"MIT", SYSTEM: b"linux", **more}
    kinds = {tag: TRANSLATED if tag in (SUMMARY, DESCRIPTION) else TEXT for tag in words}
    main = _header(OF_PACKAGE, {tag: (kinds[tag], word + b"\0") for tag, word in words.items()})
    signatures = _header(OF_SIGNATURES, {SIGNED_SIZE: (NUMBER, struct.pack(">I", len(main) + len(payload)))})
    lead = b"\xed\xab\xee\xdb\x03\0" + struct.pack(">HH66sHH16x", 0, 1, b"tool-1-1", 1, 5)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lead + signatures + bytes(-len(signatures) % 8) + main + payload)
    return path


def _header(region: int, values: Mapping[int, tuple[int, bytes]]) -> bytes:
    index, data = b"", b""
    for tag, (kind, value) in sorted(values.items()):
        index += struct.pack(">IIII", tag, kind, len(data), 1)
        data += value
    count = len(values) + 1
    index = struct.pack(">IIII", region, BINARY, len(data), 16) + index
    data += struct.pack(">IIiI", region, BINARY, -16 * count, 16)
    return MAGIC + bytes(4) + struct.pack(">II", count, len(data)) + index + data
