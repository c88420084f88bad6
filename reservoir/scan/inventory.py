"""What a bundle holds, in the words of the advisories: which package of which ecosystem in which version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from reservoir.contents.model import Artifact, Bundle, TargetRecord
from reservoir.scan.versions import base

# by the code name of the release
DEBIAN = {"bookworm": "Debian:12", "trixie": "Debian:13"}
SOURCE = re.compile(r"^Source: *(\S+)(?: +\(([^)\s]+)\))? *$", re.MULTILINE)
SOURCE_RPM = re.compile(r"^(?P<name>.+)-(?P<version>[^-]+)-(?P<release>[^-]+)\.(no)?src\.rpm$")


@dataclass(frozen=True)
class Subject:
    """What an advisory may speak of: `ecosystem` is OSV's name, with its release where it has one."""

    ecosystem: str
    name: str
    version: str


@dataclass(frozen=True)
class Inventory:
    """The subjects of a bundle with the artifacts that they stand for.

    `nameless` are RPM targets whose ecosystem the manifest does not name.
    """

    subjects: dict[Subject, list[Artifact]]
    nameless: list[TargetRecord]

    @property
    def ecosystems(self) -> list[str]:
        """Return the ecosystems that advisories are needed for."""
        return sorted({subject.ecosystem for subject in self.subjects})


def inventory(bundle: Bundle) -> Inventory:
    """Return what advisories may speak of; what is inside of images are the bundle's own packages."""
    targets = {target.name: target for target in bundle.targets}
    subjects: dict[Subject, list[Artifact]] = {}
    nameless = {}
    for artifact in bundle.artifacts:
        if artifact.kind in ("debian", "rpm"):
            for name in artifact.targets:
                ecosystem = of_target(targets[name])
                if ecosystem is None:
                    nameless[name] = targets[name]
                else:
                    _add(subjects, artifact, ecosystem)
        elif artifact.kind == "python":
            _add(subjects, artifact, "PyPI")
    return Inventory(subjects, list(nameless.values()))


def of_target(target: TargetRecord) -> str | None:
    """Return the ecosystem of a target's own packages; None where the manifest does not name it."""
    return target.osv or DEBIAN.get(target.release)


def key(ecosystem: str, name: str) -> tuple[str, str]:
    """Return what packages are looked up by: the ecosystem without its release, and the name as it is compared."""
    return base(ecosystem), canonicalize_name(name) if ecosystem == "PyPI" else name


def covers(advised: str, ecosystem: str) -> bool:
    """Say whether an advisory for `advised` speaks of `ecosystem`.

    It may name no release, and then means all; or a part of one, as in `Red Hat:enterprise_linux:9::baseos`.
    """
    return advised in (ecosystem, base(ecosystem)) or advised.startswith(f"{ecosystem}:")


def source_package(artifact: Artifact) -> tuple[str, str]:
    """Return name and version of the source package that a Debian package was built from."""
    found = SOURCE.search(artifact.metadata.get("stanza", ""))
    if found is None:
        return artifact.name, artifact.version
    return found[1], found[2] or artifact.version


def _add(subjects: dict[Subject, list[Artifact]], artifact: Artifact, ecosystem: str) -> None:
    for name, version in _named(artifact):
        artifacts = subjects.setdefault(Subject(ecosystem, key(ecosystem, name)[1], version), [])
        if artifact not in artifacts:
            artifacts.append(artifact)


def _named(artifact: Artifact) -> Iterator[tuple[str, str]]:
    """Yield the names that advisories may use: Debian's name source packages, those for RPM either."""
    if artifact.kind == "debian":
        yield source_package(artifact)
        return
    yield artifact.name, artifact.version
    source = SOURCE_RPM.match(str(artifact.metadata.get("source_rpm") or "")) if artifact.kind == "rpm" else None
    if source and source["name"] != artifact.name:
        # the file's name has no epoch; packages of one source nearly always share it
        epoch, colon, _ = artifact.version.rpartition(":")
        yield source["name"], f"{epoch}{colon}{source['version']}-{source['release']}"
