"""Checks of RPM packages: what stands between them and their publication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from common.errors import ConflictError, Problem
from reservoir.artifacts.kind import AGAIN, Find, one_each
from reservoir.artifacts.rpm import reader
from reservoir.artifacts.rpm.modules import served as served_modules
from reservoir.contents import version_sets
from reservoir.contents.artifact import RpmArtifact, RpmPart
from reservoir.contents.bundle import Bundle

ONE_SOURCE = "publish bundles that were made from one source"


def check(bundles: Sequence[Bundle], find: Find) -> Iterator[Problem]:
    """Yield two files of one name, files that are no packages, and streams or version sets that contradict others."""
    for (release, arch), found in served(bundles).items():
        if problems := version_sets.contradictions(bundles, release, arch):
            yield from problems
            continue
        rpms, problems = named(chosen(bundles, release, arch, found))
        yield from problems
        try:
            served_modules(part for part in found if isinstance(part, RpmPart))
        except ConflictError as error:
            yield from error.problems
        for rpm in rpms.values():
            path = find(rpm.sha256)
            if path is not None and (reason := reader.unreadable(path)):
                yield Problem(rpm.filename, reason, AGAIN)


def served(bundles: Sequence[Bundle]) -> dict[tuple[str, str], list[RpmArtifact | RpmPart]]:
    """Return the packages and parts of some bundles by release and architecture."""
    found: dict[tuple[str, str], list[RpmArtifact | RpmPart]] = {}
    for bundle in bundles:
        every: list[RpmArtifact | RpmPart] = [*bundle.of_kind(RpmArtifact), *bundle.of_kind(RpmPart)]
        for target in bundle.targets:
            if target.os == "rpm":
                mine = found.setdefault((target.release, target.arch), [])
                mine += [artifact for artifact in every if target.name in artifact.targets]
    return found


def chosen(
    bundles: Sequence[Bundle], release: str, arch: str, found: Iterable[RpmArtifact | RpmPart]
) -> list[RpmArtifact]:
    """Return the packages that are served: of those that a version set binds the one version alone."""
    bound = version_sets.together(bundles, release, arch)
    return [a for a in found if isinstance(a, RpmArtifact) and bound.get(a.name, a.version) == a.version]


def named(rpms: Iterable[RpmArtifact]) -> tuple[dict[str, RpmArtifact], list[Problem]]:
    """Return packages by the names of their files, and the problems of those that are not one package to dnf."""
    files, problems = one_each(rpms, lambda rpm: rpm.filename, _two)
    found, more = one_each(files.values(), _meant, _two)
    return {rpm.filename: rpm for rpm in found.values()}, list(dict.fromkeys([*problems, *more]))


def _meant(rpm: RpmArtifact) -> tuple[str, str, str]:
    """Return what dnf takes a package for: its name, version and architecture."""
    arch = rpm.metadata.arch or rpm.filename.removesuffix(".rpm").rpartition(".")[2]
    return rpm.name, rpm.version.removeprefix("0:"), arch


def _two(rpm: RpmArtifact) -> Problem:
    return Problem(rpm.filename, f"two different files call themselves {rpm.name} {rpm.version}", ONE_SOURCE)
