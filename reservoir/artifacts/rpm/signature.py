"""The signature inside an RPM package: who signed its header, and whether the payload is the one the header names.

A package is a lead of 96 bytes, a header of signatures, the header proper, and the payload. A signature covers the
header proper, which holds the hash of the payload.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pysequoia import Cert

from common.errors import IntegrityError, Problem
from reservoir.contents.artifact import KeyMetadata, RpmArtifact, RpmPart
from reservoir.contents.lock import Lock
from reservoir.download.cache import CHUNK, Cache
from reservoir.signing import openpgp

LEAD = 96
MAGIC = b"\x8e\xad\xe8\x01"
# more than any real header has, so that a forged length cannot fill the memory
LARGEST = 256 << 20
# signatures of the header proper: DSA and EdDSA, RSA, and the list that newer versions of rpm write
DSA, RSA, OPENPGP = 267, 268, 278
# signatures of header and payload together, which old packages have
OLD_RSA, OLD_DSA = 1002, 1005
NAME, VERSION, RELEASE, EPOCH, ARCH = 1000, 1001, 1002, 1003, 1022
PAYLOAD_DIGEST, PAYLOAD_ALGORITHM = 5092, 5093
SHA256 = 8
ALGORITHMS = {SHA256: "sha256", 9: "sha384", 10: "sha512", 11: "sha224"}


class _MalformedError(Exception):
    """The file is no RPM package."""


# what reading a file that is no package, or a damaged one, ends with
DAMAGED = (_MalformedError, struct.error, binascii.Error)


@dataclass(frozen=True)
class _Header:
    """A header: its bytes, and where the value of each tag lies in `data`."""

    raw: bytes
    data: bytes
    tags: dict[int, tuple[int, int]]

    def binary(self, tag: int) -> bytes:
        offset, count = self.tags[tag]
        return self.data[offset : offset + count]

    def texts(self, tag: int) -> list[bytes]:
        """Return the texts of a tag, one at least; raises _MalformedError where there are none."""
        offset, count = self.tags[tag]
        found = self.data[offset:].split(b"\0", min(count, len(self.data)))[:count]
        if not found:
            raise _MalformedError(f"the tag {tag} says nothing")
        return found

    def text(self, tag: int) -> str:
        return self.texts(tag)[0].decode("utf-8", "replace") if tag in self.tags else ""

    def number(self, tag: int) -> int:
        offset, _ = self.tags[tag]
        return int.from_bytes(self.data[offset : offset + 4])


def check(locked: Lock, cache: Cache) -> None:
    """Check every locked RPM package, which lies in the cache, against the keys of its source.

    Raises IntegrityError that names each package that is not signed, signed by another key, or changed.
    """
    keys = {
        part.name: openpgp.certificates(part.metadata.text.encode(), part.filename)[0]
        for part in locked.of_kind(RpmPart)
        if isinstance(part.metadata, KeyMetadata)
    }
    found = [problem for rpm in locked.of_kind(RpmArtifact) if (problem := _problem(rpm, cache, keys))]
    if found:
        raise IntegrityError.of(found)


def refusal(path: Path, keys: Sequence[Cert]) -> str:
    """Return why a package cannot be trusted, or nothing where one of the keys signed it and it is whole."""
    try:
        with path.open("rb") as file:
            signatures, header = _headers(file)
            found = _signatures(signatures)
            if not found:
                return "it is not signed"
            if not any(openpgp.signed_beside(keys, header.raw, signature) for signature in found):
                return "it is signed by none of the source's keys"
            if PAYLOAD_DIGEST in header.tags:
                fits = _payload_fits(header, file)
            else:
                whole = header.raw + file.read()
                old = [signatures.binary(tag) for tag in (OLD_RSA, OLD_DSA) if tag in signatures.tags]
                fits = any(openpgp.signed_beside(keys, whole, signature) for signature in old)
            return "" if fits else "its payload is not the one that was signed"
    except DAMAGED as error:
        return f"it is no RPM package: {error}"


def malformed(path: Path) -> str:
    """Return why a file is no RPM package, or nothing where its headers can be read."""
    try:
        identity(path)
    except DAMAGED as error:
        return f"it is no RPM package: {error}"
    return ""


def identity(path: Path) -> str:
    """Return what a package says that it is, written `name-epoch:version-release.arch` without an epoch of 0."""
    with path.open("rb") as file:
        _, header = _headers(file)
    name, version, release, arch = (header.text(tag) for tag in (NAME, VERSION, RELEASE, ARCH))
    epoch = header.number(EPOCH) if EPOCH in header.tags else 0
    return f"{name}-{f'{epoch}:' if epoch else ''}{version}-{release}.{arch}"


def _problem(rpm: RpmArtifact, cache: Cache, keys: dict[str, Cert]) -> Problem | None:
    path = cache.path(rpm.sha256)
    reason = refusal(path, [keys[name] for name in rpm.metadata.keys])
    # a genuine package under the name of another one, such as an older version under a newer one's
    if not reason and (found := identity(path)) != f"{rpm.name}-{rpm.version}.{rpm.metadata.arch}":
        reason = f"it is {found}, and the metadata calls it {rpm.name}-{rpm.version}.{rpm.metadata.arch}"
    hint = "add the key of its maker to the source's `keys`, or ask the keeper of the package source"
    return Problem(rpm.filename, reason, hint) if reason else None


def _headers(file: BinaryIO) -> tuple[_Header, _Header]:
    """Read the header of signatures and the header proper; the payload comes next."""
    file.seek(LEAD)
    signatures = _header(file)
    file.seek(-file.tell() % 8, 1)
    return signatures, _header(file)


def _header(file: BinaryIO) -> _Header:
    """Read the header that begins here."""
    start = file.read(16)
    if len(start) < 16 or not start.startswith(MAGIC):
        raise _MalformedError("a header is missing")
    entries, length = struct.unpack(">II", start[8:])
    if 16 * entries + length > LARGEST:
        raise _MalformedError("a header is too long")
    index = file.read(16 * entries)
    data = file.read(length)
    if len(index) + len(data) != 16 * entries + length:
        raise _MalformedError("it ends too early")
    tags = {}
    for tag, _, offset, count in struct.iter_unpack(">IIII", index):
        tags[tag] = (offset, count)
    return _Header(start + index + data, data, tags)


def _signatures(header: _Header) -> list[bytes]:
    found = [header.binary(tag) for tag in (RSA, DSA) if tag in header.tags]
    if OPENPGP in header.tags:
        found += [base64.b64decode(text) for text in header.texts(OPENPGP)]
    return found


def _payload_fits(header: _Header, file: BinaryIO) -> bool:
    """Say whether the rest of the file has the hash that the header gives.

    Packages of version 6 name no algorithm beside it: there it is always sha256.
    """
    algorithm = header.number(PAYLOAD_ALGORITHM) if PAYLOAD_ALGORITHM in header.tags else SHA256
    if algorithm not in ALGORITHMS:
        raise _MalformedError(f"its payload is named by the algorithm {algorithm}, which is not known")
    digest = hashlib.new(ALGORITHMS[algorithm])
    while piece := file.read(CHUNK):
        digest.update(piece)
    return digest.hexdigest().encode() == header.texts(PAYLOAD_DIGEST)[0]
