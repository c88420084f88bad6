"""Small signed Debian repositories of real packages, as a vendor has them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from reservoir.artifacts.debian import publish as apt_tree
from reservoir.contents.artifact import DebianArtifact
from reservoir.download.cache import link_or_copy
from reservoir.signing import openpgp
from tests.unit.reservoir.parts import artifact


class Repository:
    """A repository in `folder`; its key lies in `folder`.asc."""

    def __init__(self, folder: Path, release: str = "bookworm") -> None:
        self.folder = folder
        self.release = release
        self.key = openpgp.new_key()
        self.key_file = folder.with_suffix(".asc")
        self.key_file.write_bytes(openpgp.public_key(self.key))
        self.debs: list[tuple[DebianArtifact, Path]] = []

    def add(self, name: str, version: str, **fields: str) -> None:
        """Build a package with one file in it; `fields` are further lines of its control file."""
        root = self.folder.parent / f"{name}-{version}"
        (root / "DEBIAN").mkdir(parents=True)
        lines = {
            "Package": name,
            "Version": version,
            "Architecture": "all",
            "Maintainer": "A Person <person@example.org>",
            "Description": "a package for tests",
        } | {key.replace("_", "-"): value for key, value in fields.items()}
        control = "".join(f"{key}: {value}\n" for key, value in lines.items())
        (root / "DEBIAN/control").write_text(control)
        (root / "usr/share" / name).mkdir(parents=True)
        (root / "usr/share" / name / "version").write_text(version)
        deb = root.with_name(f"{name}_{version}_all.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, deb], check=True, capture_output=True)
        described = artifact(deb, DebianArtifact, name, version, stanza=control)
        self.debs.append((described, deb))

    def write(self, **release: str) -> None:
        """Write and sign the repository; `release` are further lines of its Release file."""
        paths = {deb.sha256: path for deb, path in self.debs}

        def place(sha256: str, path: Path) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(paths[sha256], path)

        apt_tree.write(
            self.folder,
            {"amd64": [deb for deb, _ in self.debs]},
            release=self.release,
            secret=self.key,
            place=place,
        )
        lines = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in release.items())
        dist = self.folder / "dists" / self.release
        self.sign(lines.encode() + (dist / "Release").read_bytes(), self.key)

    def sign(self, text: bytes, key: bytes) -> None:
        """Write the Release file with a signature."""
        dist = self.folder / "dists" / self.release
        (dist / "Release").write_bytes(text)
        (dist / "InRelease").write_bytes(openpgp.sign_inside(key, text))
        (dist / "Release.gpg").write_bytes(openpgp.sign_beside(key, text))

    def source(self, name: str = "disk") -> Mapping[str, Any]:
        """Return what a manifest in the folder above says about it."""
        return {
            "name": name,
            "kind": "debian",
            "url": self.folder.as_uri(),
            "keys": [self.key_file.name],
            "suite": self.release,
            "components": ["main"],
        }


PAST = format_datetime(datetime(2026, 1, 8, tzinfo=UTC), usegmt=True)
