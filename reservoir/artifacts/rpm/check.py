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
    """Return packages by the names of their files, and the problems of names that are not one file's."""
    return one_each(
        rpms,
        lambda rpm: rpm.filename,
        lambda rpm: Problem(rpm.filename, f"two different files call themselves {rpm.name} {rpm.version}", ONE_SOURCE),
    )
