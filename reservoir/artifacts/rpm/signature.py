"""The signature inside an RPM package: who signed its header, and whether the payload is the one the header names.

A package is a lead of 96 bytes, a header of signatures, the header proper, and the payload. A signature covers the
header proper, which holds the hash of the payload.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from pysequoia import Cert

from common.errors import IntegrityError, Problem
from reservoir.artifacts.rpm.header import ARCH, DAMAGED, EPOCH, NAME, RELEASE, VERSION, Header, MalformedError
from reservoir.artifacts.rpm.header import read as read_header
from reservoir.contents.artifact import KeyMetadata, RpmArtifact, RpmPart
from reservoir.contents.lock import Lock
from reservoir.download.cache import CHUNK, Cache
from reservoir.signing import openpgp

LEAD = 96
# signatures of the header proper: DSA and EdDSA, RSA, and the list that newer versions of rpm write
DSA, RSA, OPENPGP = 267, 268, 278
# signatures of header and payload together, which old packages have
OLD_RSA, OLD_DSA = 1002, 1005
PAYLOAD_DIGEST, PAYLOAD_ALGORITHM = 5092, 5093
SHA256 = 8
ALGORITHMS = {SHA256: "sha256", 9: "sha384", 10: "sha512", 11: "sha224"}


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


def headers(path: Path) -> bytes:
    """Return a package as far as its payload; raises one of DAMAGED where it is none."""
    with path.open("rb") as file:
        _headers(file)
        end = file.tell()
        file.seek(0)
        return file.read(end)


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


def _headers(file: BinaryIO) -> tuple[Header, Header]:
    """Read the header of signatures and the header proper; the payload comes next."""
    file.seek(LEAD)
    signatures = read_header(file)
    file.seek(-file.tell() % 8, 1)
    return signatures, read_header(file)


def _signatures(header: Header) -> list[bytes]:
    found = [header.binary(tag) for tag in (RSA, DSA) if tag in header.tags]
    if OPENPGP in header.tags:
        found += [base64.b64decode(text) for text in header.texts(OPENPGP)]
    return found


def _payload_fits(header: Header, file: BinaryIO) -> bool:
    """Say whether the rest of the file has the hash that the header gives.

    Packages of version 6 name no algorithm beside it: there it is always sha256.
    """
    algorithm = header.number(PAYLOAD_ALGORITHM) if PAYLOAD_ALGORITHM in header.tags else SHA256
    if algorithm not in ALGORITHMS:
        raise MalformedError(f"its payload is named by the algorithm {algorithm}, which is not known")
    digest = hashlib.new(ALGORITHMS[algorithm])
    while piece := file.read(CHUNK):
        digest.update(piece)
    return digest.hexdigest().encode() == header.texts(PAYLOAD_DIGEST)[0]
