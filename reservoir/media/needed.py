"""Wheels of a bundle that the installer needs before anything else can run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packaging.markers import default_environment
from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from common.errors import IntegrityError
from reservoir.artifacts.python import core_metadata
from reservoir.bundle.bundles import BLOBS
from reservoir.bundle.verification import Verified
from reservoir.contents.artifact import PythonArtifact
from reservoir.contents.target import TargetRecord
from reservoir.manifest.model import MACHINES

# what bootstrap.py installs
ROOTS = ("penstock[reservoir,site]", "pip")


def installer_wheels(found: Verified) -> set[str]:
    """Return the hashes of the wheels in a folder that the installer takes, for each Python of the bundle."""
    carried = found.files()
    hashes: set[str] = set()
    for target in found.bundle.targets:
        wheels: dict[str, PythonArtifact] = {
            canonicalize_name(artifact.name): artifact
            for artifact in found.bundle.of_kind(PythonArtifact)
            if target.name in artifact.targets
        }
        if target.python and "penstock" in wheels:
            paths = {a.sha256: found.folder / BLOBS / a.sha256 for a in wheels.values() if a.sha256 in carried}
            hashes |= _closure(wheels, paths, _environment(target, target.python))
    return hashes


def requirements(path: Path) -> list[Requirement]:
    """Return what a wheel says it requires; raises IntegrityError where it has no metadata."""
    try:
        raw, _ = parse_email(core_metadata.read(path))
        return [Requirement(text) for text in raw.get("requires_dist", [])]
    except ValueError as error:
        raise IntegrityError(f"not a wheel: {error}", where=str(path), hint="build the bundle again") from error


def _closure(
    wheels: Mapping[str, PythonArtifact], paths: Mapping[str, Path], environment: Mapping[str, str]
) -> set[str]:
    """Return the wheels that the roots lead to; one that did not come along is at the site already, with its own."""
    left = [Requirement(root) for root in ROOTS]
    seen: set[tuple[str, frozenset[str]]] = set()
    hashes = set()
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if (name, frozenset(wanted.extras)) in seen or name not in wheels:
            continue
        seen.add((name, frozenset(wanted.extras)))
        hashes.add(wheels[name].sha256)
        if (path := paths.get(wheels[name].sha256)) is None:
            continue
        for requirement in requirements(path):
            marker = requirement.marker
            extras = ["", *wanted.extras]
            if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in extras):
                left.append(requirement)
    return hashes


def _environment(target: TargetRecord, python: str) -> dict[str, str]:
    own = {key: str(value) for key, value in default_environment().items()}
    machine = MACHINES.get(target.arch, target.arch)
    return own | {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine}
