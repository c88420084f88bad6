"""Package list of a bundle in the words of the advisories: which package of which ecosystem in which version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from packaging.utils import canonicalize_name

from reservoir.artifacts.image.system import Installed
from reservoir.artifacts.kinds import describe
from reservoir.artifacts.python.describe import ECOSYSTEM as PYPI
from reservoir.contents.artifact import Artifact, RpmArtifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import TargetRecord
from reservoir.scan.versions import Compare, base, comparison, rpm


@dataclass(frozen=True)
class Subject:
    """What an advisory may speak of: `ecosystem` is OSV's name, with its release where it has one."""

    ecosystem: str
    name: str
    version: str


@dataclass(frozen=True)
class PackageList:
    """The subjects of a bundle with the artifacts that they stand for.

    `nameless` are RPM targets whose ecosystem the manifest does not name.
    """

    subjects: dict[Subject, list[Artifact]]
    nameless: list[TargetRecord]

    @property
    def ecosystems(self) -> list[str]:
        """Return the ecosystems that advisories are needed for."""
        return sorted({subject.ecosystem for subject in self.subjects})

    def order(self, subject: Subject) -> Compare:
        """Return the order of a subject's versions: of an RPM rpm's, whatever its target's ecosystem is called."""
        of_rpm = any(isinstance(artifact, RpmArtifact) for artifact in self.subjects[subject])
        return rpm if of_rpm else comparison(subject.ecosystem)


def package_list(bundle: Bundle, installed: Mapping[str, Sequence[Installed]] = MappingProxyType({})) -> PackageList:
    """Return what advisories may speak of: the bundle's own packages, which its own images are made of.

    `installed` are the packages inside images from elsewhere, by the images' hashes.
    """
    targets = {target.name: target for target in bundle.targets}
    subjects: dict[Subject, list[Artifact]] = {}
    nameless = {}
    for artifact in bundle.artifacts:
        for one in installed.get(artifact.sha256, ()):
            _add(subjects, artifact, one.ecosystem, [(one.advised, one.version)])
        for target in map(targets.get, artifact.targets or [""]):
            described = describe(artifact, target)
            if described.ecosystem is not None:
                _add(subjects, artifact, described.ecosystem, described.advised)
            elif described.advised and target:
                nameless[target.name] = target
    return PackageList(subjects, list(nameless.values()))


def key(ecosystem: str, name: str) -> tuple[str, str]:
    """Return what packages are looked up by: the ecosystem without its release, and the name as it is compared."""
    return base(ecosystem), canonicalize_name(name) if ecosystem == PYPI else name


def covers(advised: str, ecosystem: str) -> bool:
    """Say whether an advisory for `advised` speaks of `ecosystem`.

    It may name no release, and then means all; or a part of one, as in `Red Hat:enterprise_linux:9::baseos`.
    """
    return advised in (ecosystem, base(ecosystem)) or advised.startswith(f"{ecosystem}:")


def _add(
    subjects: dict[Subject, list[Artifact]], artifact: Artifact, ecosystem: str, advised: Iterable[tuple[str, str]]
) -> None:
    for name, version in advised:
        artifacts = subjects.setdefault(Subject(ecosystem, key(ecosystem, name)[1], version), [])
        if artifact not in artifacts:
            artifacts.append(artifact)
