"""The names of Debian packages elsewhere."""

from __future__ import annotations

import re

from reservoir.artifacts.kind import Description, Purl
from reservoir.contents.artifact import DebianArtifact
from reservoir.contents.target import TargetRecord
from reservoir.manifest.releases import RELEASES

ARCHITECTURE = re.compile(r"^Architecture: *(\S+)$", re.MULTILINE)
SOURCE = re.compile(r"^Source: *(\S+)(?: +\(([^)\s]+)\))? *$", re.MULTILINE)


def describe(artifact: DebianArtifact, target: TargetRecord | None) -> Description:
    """Return what others call a package; advisories name the source package that it was built from."""
    found = ARCHITECTURE.search(artifact.metadata.stanza)
    arch = found[1] if found else target.arch if target else ""
    words = {"arch": arch, "distro": target.release if target else ""}
    known = RELEASES.get(target.release) if target else None
    space = known.distribution.lower() if known else "debian"
    return Description(
        Purl("deb", space, artifact.name, artifact.version, words),
        "library",
        [_source(artifact)],
        target.ecosystem if target else None,
    )


def _source(artifact: DebianArtifact) -> tuple[str, str]:
    """Return name and version of the source package."""
    found = SOURCE.search(artifact.metadata.stanza)
    if found is None:
        return artifact.name, artifact.version
    return found[1], found[2] or artifact.version
