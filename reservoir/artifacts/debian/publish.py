"""A signed Debian repository made of a bundle's packages."""

from __future__ import annotations

import gzip
import hashlib
import lzma
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from common.errors import ConflictError, IntegrityError, Problem
from reservoir.artifacts.debian import check
from reservoir.artifacts.debian.check import served
from reservoir.artifacts.kind import AGAIN, Staging
from reservoir.contents import version_sets
from reservoir.contents.artifact import DebianArtifact
from reservoir.signing import openpgp

KEYRING = "apt.asc"
# above everything that a site's administrator sets without thinking of it
PIN_PRIORITY = 1001
DATE = "Sat, 01 Jan 2000 00:00:00 GMT"


Place = Callable[[str, Path], None]


def publish(staging: Staging) -> None:
    """Write the repository of every Debian release that the bundles serve, each for all its architectures.

    The files `preferences/RELEASE-ARCH.pref` keep the bundles' version sets together on nodes. Raises
    ConflictError where bundles contradict each other.
    """
    staging.progress("publish Debian packages")
    (staging.keys / KEYRING).write_bytes(openpgp.public_key(staging.secret))
    tree, bundles = staging.tree / "apt", staging.bundles
    (tree / "preferences").mkdir(parents=True)
    for release, by_arch in sorted(served(bundles).items()):
        write(tree, by_arch, release=release, secret=staging.secret, place=staging.place)
        for arch in by_arch:
            versions = version_sets.together(bundles, release, arch)
            (tree / "preferences" / f"{release}-{arch}.pref").write_text(preferences(versions))


def preferences(versions: Mapping[str, str]) -> str:
    """Return apt's preferences that let each package have the one version, whatever else the site offers."""
    return "\n".join(
        f"Package: {name}\nPin: version {version}\nPin-Priority: {PIN_PRIORITY}\n" for name, version in versions.items()
    )


def write(
    tree: Path, debs: Mapping[str, Iterable[DebianArtifact]], *, release: str, secret: bytes, place: Place
) -> None:
    """Write the repository of one release below `tree`; `debs` are its packages for each architecture.

    `place(sha256, path)` puts a package's file at a path. Raises ConflictError where two packages of one version
    differ.
    """
    by_arch = {arch: list(packages) for arch, packages in sorted(debs.items())}
    unfit = {deb.filename: why for packages in by_arch.values() for deb in packages if (why := check.fault(deb))}
    if unfit:
        raise IntegrityError.of([Problem(filename, reason, AGAIN) for filename, reason in unfit.items()])
    pool, problems = check.pool(release, by_arch)
    if problems:
        raise ConflictError.of(problems)
    for path, deb in pool.items():
        place(deb.sha256, tree / path)
    dist = tree / "dists" / release
    for arch, packages in by_arch.items():
        entries = {}
        for deb in packages:
            path = check.place(release, deb)
            said = f"Filename: {path}\nSize: {deb.size}\nSHA256: {deb.sha256}\n\n"
            entries[deb.name, deb.version] = f"{deb.metadata.stanza}{said}"
        _write_index(dist / "main" / f"binary-{arch}", "".join(text for _, text in sorted(entries.items())).encode())
    text = _release(dist, release, list(by_arch))
    (dist / "Release").write_bytes(text)
    (dist / "InRelease").write_bytes(openpgp.sign_inside(secret, text))
    (dist / "Release.gpg").write_bytes(openpgp.sign_beside(secret, text))


def _write_index(folder: Path, content: bytes) -> None:
    """Write an index in each form, under its name and under its hash, which never names anything else."""
    by_hash = folder / "by-hash" / "SHA256"
    by_hash.mkdir(parents=True)
    forms = {
        "Packages": content,
        "Packages.gz": gzip.compress(content, 6, mtime=0),
        "Packages.xz": lzma.compress(content, preset=6),
    }
    for name, form in forms.items():
        (folder / name).write_bytes(form)
        (by_hash / hashlib.sha256(form).hexdigest()).hardlink_to(folder / name)


def _release(dist: Path, release: str, architectures: list[str]) -> bytes:
    """Return the text that the signature covers.

    It has no Valid-Until, as a closed site has no one to renew it, and one Date for ever: apt refuses a date that lies
    ahead of the node's clock, and silently stays with what it has where a rollback brings an earlier one.
    """
    lines = [
        "Origin: Penstock",
        "Label: Penstock",
        f"Suite: {release}",
        f"Codename: {release}",
        f"Date: {DATE}",
        f"Architectures: {' '.join(architectures)}",
        "Components: main",
        "Acquire-By-Hash: yes",
        "SHA256:",
    ]
    for path in sorted(dist.rglob("Packages*")):
        content = path.read_bytes()
        lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {path.relative_to(dist)}")
    return ("\n".join(lines) + "\n").encode()
