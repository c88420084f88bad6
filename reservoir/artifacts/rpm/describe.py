"""The names of RPM packages, and of what dnf needs beside them, elsewhere."""

from __future__ import annotations

import re

from reservoir.artifacts.kind import Description, Purl
from reservoir.contents.artifact import RpmArtifact, RpmPart
from reservoir.contents.target import TargetRecord

SOURCE_RPM = re.compile(r"^(?P<name>.+)-(?P<version>[^-]+)-(?P<release>[^-]+)\.(no)?src\.rpm$")


def describe(artifact: RpmArtifact | RpmPart, target: TargetRecord | None) -> Description:
    """Return what others call a package, or a part, of which nobody else knows the name."""
    if isinstance(artifact, RpmPart):
        words = {"checksum": f"sha256:{artifact.sha256}"}
        return Description(Purl("generic", None, artifact.filename, artifact.version, words), "file")
    ecosystem = target.ecosystem if target else None
    space = (ecosystem or "").partition(":")[0].lower().replace(" ", "-")
    epoch, _, version = artifact.version.rpartition(":")
    words = {"arch": artifact.metadata.arch, "epoch": epoch.removeprefix("0")}
    words |= {"distro": f"{space}-{target.release}" if target and space else ""}
    return Description(
        Purl("rpm", space.replace("red-hat", "redhat"), artifact.name, version, words),
        "library",
        _advised(artifact),
        ecosystem,
    )


def _advised(artifact: RpmArtifact) -> list[tuple[str, str]]:
    """Return the package, and the source package that it was built from where that has another name."""
    names = [(artifact.name, artifact.version)]
    source = SOURCE_RPM.match(artifact.metadata.source_rpm)
    if source and source["name"] != artifact.name:
        # the file's name has no epoch; where nobody tells it, packages of one source nearly always share it
        known = artifact.metadata.source_epoch
        epoch = artifact.version.rpartition(":")[0] if known is None else known.removeprefix("0")
        names.append((source["name"], f"{epoch}{epoch and ':'}{source['version']}-{source['release']}"))
    return names
