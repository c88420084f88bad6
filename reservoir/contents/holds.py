"""Tuples of versions that belong together: a driver, its fabric manager, the kernel's headers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from common.errors import ConflictError, InputError
from reservoir.contents.artifact import Artifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import HeldVersions
from reservoir.manifest.model import Hold, Manifest, Target


def of_target(wanted: Manifest, target: Target, packages: Iterable[Artifact], source: str) -> list[HeldVersions]:
    """Return the tuples of the manifest `source` that go into a target, whose packages these are.

    Raises InputError where one is not consistent.
    """
    versions: dict[str, set[str]] = {}
    for package in packages:
        versions.setdefault(package.name, set()).add(package.version)
    held = [resolve(hold, target.name, versions, f"{source}: holds.{hold.name}") for hold in wanted.held(target)]
    return [found for found in held if found]


def resolve(hold: Hold, target: str, versions: Mapping[str, Collection[str]], where: str) -> HeldVersions | None:
    """Return the versions that a tuple has in a target, None where no member goes into it.

    `versions` are those of every package of the target by its name. Raises InputError that names the tuple, what
    differs and the hint, where the tuple is not consistent.
    """
    present = {name: sorted(versions[name]) for name in hold.packages if versions.get(name)}
    if not present:
        return None
    if absent := [name for name in hold.packages if name not in present]:
        raise InputError(
            f"{_spoken(hold)} is not whole: {', '.join(present)} goes in without {', '.join(absent)}",
            where=where,
            hint=f"list {', '.join(absent)} in a group of the target, too, or take it out of the tuple",
        )
    for name, found in present.items():
        if len(found) > 1:
            raise InputError(
                f"{_spoken(hold)} has {name} in several versions: {', '.join(found)}",
                where=where,
                hint="let every group take the same version",
            )
        if not fnmatchcase(found[0], hold.packages[name]):
            raise InputError(
                f"{_spoken(hold)} wants {name} {hold.packages[name]}, and {found[0]} would go in",
                where=where,
                hint="correct the version, or add a package source that has it to the target",
            )
    chosen = {name: found[0] for name, found in present.items()}
    if len({upstream(chosen[name]) for name in hold.equal}) > 1:
        differ = ", ".join(f"{name} {chosen[name]}" for name in hold.equal)
        raise InputError(
            f"{_spoken(hold)} differs in what must be equal: {differ}",
            where=where,
            hint="give these packages versions of one upstream release in the tuple",
        )
    return HeldVersions(name=hold.name, target=target, packages=chosen)


def _spoken(hold: Hold) -> str:
    """Return the tuple as errors name it, with what its author says of it."""
    return f"the tuple {hold.name}" + (f" ({hold.reason})" if hold.reason else "")


def upstream(version: str) -> str:
    """Return the part of a version that its author gave: without the epoch and the packager's own number."""
    version = version.partition(":")[2] or version
    return version.rpartition("-")[0] or version


def together(bundles: Iterable[Bundle], release: str, arch: str) -> dict[str, str]:
    """Return the version of every held package of the machines with `release` and `arch`.

    Raises ConflictError where the tuples of two bundles want one package in two versions.
    """
    chosen: dict[str, tuple[str, str]] = {}
    for bundle in bundles:
        targets = {t.name for t in bundle.targets if (t.release, t.arch) == (release, arch)}
        for held in bundle.holds:
            for name, version in held.packages.items() if held.target in targets else ():
                here = f"{held.name} of {bundle.name} {bundle.version}"
                other, there = chosen.setdefault(name, (version, here))
                if other != version:
                    raise ConflictError(
                        f"the tuple {there} holds {name} at {other}, and {here} holds it at {version}",
                        where=f"{release} {arch}",
                        hint="build one of the bundles again with the versions of the other",
                    )
    return {name: version for name, (version, _) in sorted(chosen.items())}
