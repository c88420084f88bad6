"""Checks of wheels: what stands between them and their publication."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from common.errors import Problem
from reservoir.artifacts.kind import AGAIN, Find, one_each, too_long
from reservoir.artifacts.python import core_metadata
from reservoir.contents.artifact import PythonArtifact
from reservoir.contents.bundle import Bundle

ONE_SOURCE = "publish bundles that were made from one source"


def check(bundles: Sequence[Bundle], find: Find) -> Iterator[Problem]:
    """Yield each name that two different files have, or that is no wheel's, and each file that is no wheel."""
    wheels, problems = chosen(wheel for bundle in bundles for wheel in bundle.of_kind(PythonArtifact))
    yield from problems
    for name, wheel in wheels.items():
        try:
            project = parse_wheel_filename(name)[0]
        except (InvalidWheelFilename, ValueError) as error:
            yield Problem(name, f"not the name of a wheel: {error}", AGAIN)
            continue
        if canonicalize_name(wheel.name) != project:
            yield Problem(name, f"the list calls it {wheel.name}, as which no pip finds it", AGAIN)
        if reason := too_long(described(name)):
            yield Problem(name, reason, AGAIN)
        if (path := find(wheel.sha256)) is None:
            continue
        try:
            core_metadata.read_named(path, name)
        except ValueError as error:
            yield Problem(name, f"not a wheel: {error}", AGAIN)


def uninstallable(bundle: Bundle, find: Find) -> Iterator[Problem]:
    """Yield each wheel that an index can hold and pip does not install, or not as it says."""
    for wheel in bundle.of_kind(PythonArtifact):
        if (path := find(wheel.sha256)) is None:
            continue
        try:
            core_metadata.require_installable(path, wheel.filename)
        except ValueError as error:
            yield Problem(wheel.filename, f"not a wheel: {error}", AGAIN)


def chosen(wheels: Iterable[PythonArtifact]) -> tuple[dict[str, PythonArtifact], list[Problem]]:
    """Return wheels by the names of their files, and the problems of those that are not one file's, however spelled."""
    found, problems = one_each(
        wheels,
        lambda wheel: _meant(wheel.filename),
        lambda wheel: Problem(wheel.filename, "two different files have one name", ONE_SOURCE),
    )
    return {wheel.filename: wheel for wheel in found.values()}, problems


def described(filename: str) -> str:
    """Return the name of the file beside a wheel that has its metadata."""
    return f"{filename}.metadata"


def _meant(filename: str) -> Hashable:
    """Return what pip takes a wheel for by its name, which has several spellings."""
    try:
        return parse_wheel_filename(filename)
    except (InvalidWheelFilename, ValueError):
        return filename
