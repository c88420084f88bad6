"""A signed Debian repository made of a bundle's packages."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from common.errors import ConflictError, IntegrityError
from reservoir.artifacts.kind import Staging
from reservoir.contents import version_sets
from reservoir.contents.artifact import DebianArtifact
from reservoir.signing import openpgp

KEYRING = "apt.asc"
# above everything that a site's administrator sets without thinking of it
PIN_PRIORITY = 1001
DATE = "Sat, 01 Jan 2000 00:00:00 GMT"
SOURCE = r"[A-Za-z0-9][A-Za-z0-9.+-]*"


Place = Callable[[str, Path], None]


def publish(staging: Staging) -> None:
    """Write the repository of every Debian release that the bundles serve, each for all its architectures.

    The files `preferences/RELEASE-ARCH.pref` keep the bundles' version sets together on nodes. Raises
    ConflictError where bundles contradict each other.
    """
    staging.progress("publish Debian packages")
    (staging.keys / KEYRING).write_bytes(openpgp.public_key(staging.secret))
    tree, bundles = staging.tree / "apt", staging.bundles
    served: dict[str, dict[str, list[DebianArtifact]]] = {}
    for bundle in bundles:
        for target in bundle.targets:
            if target.os == "debian":
                debs = served.setdefault(target.release, {}).setdefault(target.arch, [])
                debs += [deb for deb in bundle.of_kind(DebianArtifact) if target.name in deb.targets]
    (tree / "preferences").mkdir(parents=True)
    for release, by_arch in sorted(served.items()):
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
    pool: dict[PurePosixPath, DebianArtifact] = {}
    dist = tree / "dists" / release
    for arch, packages in sorted(debs.items()):
        entries = {}
        for deb in packages:
            stanza = deb.metadata.stanza
            path = pool_path(release, _field(stanza, "Source") or deb.name, deb.filename)
            if path not in pool:
                place(deb.sha256, tree / path)
            if pool.setdefault(path, deb).sha256 != deb.sha256:
                raise ConflictError(
                    f"two different files call themselves {deb.name} {deb.version}",
                    where=deb.filename,
                    hint="publish bundles that were made from one source",
                )
            entries[deb.name, deb.version] = f"{stanza}Filename: {path}\nSize: {deb.size}\nSHA256: {deb.sha256}\n\n"
        _write_index(dist / "main" / f"binary-{arch}", "".join(text for _, text in sorted(entries.items())).encode())
    text = _release(dist, release, sorted(debs))
    (dist / "Release").write_bytes(text)
    (dist / "InRelease").write_bytes(openpgp.sign_inside(secret, text))
    (dist / "Release.gpg").write_bytes(openpgp.sign_beside(secret, text))


def _write_index(folder: Path, content: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "Packages").write_bytes(content)
    (folder / "Packages.gz").write_bytes(gzip.compress(content, 6, mtime=0))
    (folder / "Packages.xz").write_bytes(lzma.compress(content, preset=6))


def pool_path(release: str, source: str, filename: str) -> PurePosixPath:
    """Return where a package lies in a repository, by the name of its source as Debian does.

    Each release has a pool of its own, as sources beside Debian may use one file name in several. Raises
    IntegrityError where that name would lead elsewhere.
    """
    source = source.split(maxsplit=1)[0]
    if re.fullmatch(SOURCE, source) is None:
        raise IntegrityError(
            f"{source} is not the name of a source package", where=filename, hint="get the bundle again from its maker"
        )
    letter = source[:4] if source.startswith("lib") else source[:1]
    return PurePosixPath("pool", release, letter, source, filename)


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
