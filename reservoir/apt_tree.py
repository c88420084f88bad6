"""A signed Debian repository made of a bundle's packages."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path, PurePosixPath

from pysequoia import SignatureMode, Tsk, sign

from reservoir.errors import ConflictError, IntegrityError
from reservoir.model import Artifact

USER_ID = "Penstock package archive"
KEYRING = "apt.asc"
SOURCE = r"[A-Za-z0-9][A-Za-z0-9.+-]*"


def new_key() -> bytes:
    """Return a new secret key for repositories; it never expires, as clocks in a closed network may be wrong."""
    return bytes(Tsk.generate(user_id=USER_ID, validity_seconds=None))


def public_key(secret: bytes) -> bytes:
    """Return the public half of a repository key, in ASCII armour."""
    return str(Tsk.from_bytes(secret).extract_certificate()).encode()


def binary_key(secret: bytes) -> bytes:
    """Return the public half of a repository key as gpgv reads it."""
    return bytes(Tsk.from_bytes(secret).extract_certificate())


def write(
    tree: Path,
    debs: Iterable[Artifact],
    *,
    release: str,
    arch: str,
    created: datetime,
    secret: bytes,
    place: Callable[[str, Path], None],
) -> None:
    """Write the repository of one release below `tree`; `place(sha256, path)` puts a package's file at a path.

    Raises ConflictError where two packages of one version differ.
    """
    entries: dict[tuple[str, str, str], Artifact] = {}
    for deb in debs:
        stanza = deb.metadata["stanza"]
        key = (deb.name, deb.version, _field(stanza, "Architecture"))
        if entries.setdefault(key, deb).sha256 != deb.sha256:
            raise ConflictError(
                f"two different files call themselves {' '.join(key)}",
                where=deb.filename,
                cure="publish bundles that were made from one source",
            )
    packages = ""
    for _, deb in sorted(entries.items()):
        stanza = deb.metadata["stanza"]
        pool = pool_path(_field(stanza, "Source") or deb.name, deb.filename)
        place(deb.sha256, tree / pool)
        packages += f"{stanza}Filename: {pool}\nSize: {deb.size}\nSHA256: {deb.sha256}\n\n"
    dist = tree / "dists" / release
    index = dist / "main" / f"binary-{arch}"
    index.mkdir(parents=True)
    content = packages.encode()
    (index / "Packages").write_bytes(content)
    (index / "Packages.gz").write_bytes(gzip.compress(content, 6, mtime=0))
    (index / "Packages.xz").write_bytes(lzma.compress(content, preset=6))
    text = _release(dist, release, arch, created)
    (dist / "Release").write_bytes(text)
    signer = Tsk.from_bytes(secret).signer()
    (dist / "InRelease").write_bytes(sign(signer, text, mode=SignatureMode.CLEAR))
    (dist / "Release.gpg").write_bytes(sign(signer, text, mode=SignatureMode.DETACHED))


def pool_path(source: str, filename: str) -> PurePosixPath:
    """Return where a package lies in a repository, by the name of its source as Debian does.

    Raises IntegrityError where that name would lead elsewhere.
    """
    source = source.split(maxsplit=1)[0]
    if re.fullmatch(SOURCE, source) is None:
        raise IntegrityError(
            f"{source} is not the name of a source package", where=filename, cure="get the bundle again from its maker"
        )
    letter = source[:4] if source.startswith("lib") else source[:1]
    return PurePosixPath("pool/main", letter, source, filename)


def _release(dist: Path, release: str, arch: str, created: datetime) -> bytes:
    """Return the text that the signature covers. It has no Valid-Until: a closed site has no one to renew it."""
    lines = [
        "Origin: Penstock",
        "Label: Penstock",
        f"Suite: {release}",
        f"Codename: {release}",
        f"Date: {format_datetime(created, usegmt=True)}",
        f"Architectures: {arch}",
        "Components: main",
        "SHA256:",
    ]
    for path in sorted(dist.rglob("Packages*")):
        content = path.read_bytes()
        lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {path.relative_to(dist)}")
    return ("\n".join(lines) + "\n").encode()


def _field(stanza: str, name: str) -> str:
    """Return the value of a one-line field, or nothing."""
    for line in stanza.splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return ""
