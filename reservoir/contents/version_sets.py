"""Version sets, packages whose versions belong together: a driver, its fabric manager, the kernel's headers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from common.errors import ConflictError, InputError, Problem
from reservoir.contents.artifact import Artifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import SetVersions
from reservoir.manifest.model import Manifest, Target, VersionSet


def of_target(wanted: Manifest, target: Target, packages: Iterable[Artifact], source: str) -> list[SetVersions]:
    """Return the version sets of the manifest `source` that go into a target, whose packages these are.

    Raises InputError where one is not consistent.
    """
    versions: dict[str, set[str]] = {}
    for package in packages:
        versions.setdefault(package.name, set()).add(package.version)
    found = [
        resolve(one, target.name, versions, f"{source}: version_sets.{one.name}")
        for one in wanted.target_version_sets(target)
    ]
    return [one for one in found if one]


def resolve(
    version_set: VersionSet, target: str, versions: Mapping[str, Collection[str]], where: str
) -> SetVersions | None:
    """Return the versions that a version set has in a target, None where no member goes into it.

    `versions` are those of every package of the target by its name. Raises InputError that names the version set, what
    differs and the hint, where the version set is not consistent.
    """
    present = {name: sorted(versions[name]) for name in version_set.packages if versions.get(name)}
    if not present:
        return None
    if absent := [name for name in version_set.packages if name not in present]:
        raise InputError(
            f"{_spoken(version_set)} is not whole: {', '.join(present)} goes in without {', '.join(absent)}",
            where=where,
            hint=f"list {', '.join(absent)} in a group of the target, too, or take it out of the version set",
        )
    for name, found in present.items():
        if len(found) > 1:
            raise InputError(
                f"{_spoken(version_set)} has {name} in several versions: {', '.join(found)}",
                where=where,
                hint="let every group take the same version",
            )
        if not fnmatchcase(found[0], version_set.packages[name]):
            raise InputError(
                f"{_spoken(version_set)} wants {name} {version_set.packages[name]}, and {found[0]} would go in",
                where=where,
                hint="correct the version, or add a package source that has it to the target",
            )
    chosen = {name: found[0] for name, found in present.items()}
    if len({upstream(chosen[name]) for name in version_set.equal}) > 1:
        differ = ", ".join(f"{name} {chosen[name]}" for name in version_set.equal)
        raise InputError(
            f"{_spoken(version_set)} differs in what must be equal: {differ}",
            where=where,
            hint="give these packages versions of one upstream release in the version set",
        )
    return SetVersions(name=version_set.name, target=target, packages=chosen)


def _spoken(version_set: VersionSet) -> str:
    """Return the version set as errors name it, with what its author says of it."""
    return f"the version set {version_set.name}" + (f" ({version_set.reason})" if version_set.reason else "")


def upstream(version: str) -> str:
    """Return the part of a version that its author gave: without the epoch and the packager's own number."""
    version = version.partition(":")[2] or version
    return version.rpartition("-")[0] or version


def contradictions(bundles: Sequence[Bundle], release: str, arch: str) -> list[Problem]:
    """Return what `together` would refuse."""
    try:
        together(bundles, release, arch)
    except ConflictError as error:
        return list(error.problems)
    return []


def leaps(held: Sequence[Bundle], bundle: Bundle) -> list[str]:
    """Return what version sets of a bundle bind to another line, by the first number, than those of bundles `held`.

    Of each version set one package stands for all.
    """
    machines = {target.name: (target.release, target.arch) for target in bundle.targets}
    said = []
    for one in (one for one in bundle.version_sets if one.target in machines):
        release, arch = machines[one.target]
        known = {name: version for each in held for name, version in _bound(each, release, arch)}
        for name, version in sorted(one.packages.items()):
            before, now = upstream(known.get(name, version)), upstream(version)
            if before.partition(".")[0] != now.partition(".")[0]:
                said.append(f"it brings {name} {now} for {release} {arch}, where this site holds {before}")
                break
    return said


def _bound(bundle: Bundle, release: str, arch: str) -> Iterator[tuple[str, str]]:
    """Yield the packages that version sets bind on such machines, each with its version."""
    targets = {target.name for target in bundle.targets if (target.release, target.arch) == (release, arch)}
    for one in bundle.version_sets:
        yield from one.packages.items() if one.target in targets else ()


def together(bundles: Iterable[Bundle], release: str, arch: str) -> dict[str, str]:
    """Return the version of every package in version sets of the machines with `release` and `arch`.

    Raises ConflictError where the version sets of two bundles want one package in two versions.
    """
    chosen: dict[str, tuple[str, str]] = {}
    for bundle in bundles:
        targets = {t.name for t in bundle.targets if (t.release, t.arch) == (release, arch)}
        for one in bundle.version_sets:
            for name, version in one.packages.items() if one.target in targets else ():
                here = f"{one.name} of {bundle.name} {bundle.version}"
                other, there = chosen.setdefault(name, (version, here))
                if other != version:
                    raise ConflictError(
                        f"the version set {there} holds {name} at {other}, and {here} holds it at {version}",
                        where=f"{release} {arch}",
                        hint="build one of the bundles again with the versions of the other",
                    )
    return {name: version for name, (version, _) in sorted(chosen.items())}
