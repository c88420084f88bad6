"""The Python part of a lock: every wheel that targets, their groups and their images need."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from reservoir.artifacts.kind import Resolved, Scope
from reservoir.artifacts.python import projects, wheels
from reservoir.contents.artifact import PythonArtifact
from reservoir.contents.lock import LockedImage
from reservoir.download import fetch, indexes
from reservoir.download.indexes import Indexes
from reservoir.manifest.model import Target

DOWNLOADS = 8


def resolve(scope: Scope) -> Resolved:
    """Return the wheels of the requirements, the local projects, the groups and the images.

    The projects' own are left out, as a build makes them; images are resolved apart from all others.
    """
    found: list[PythonArtifact] = []
    images = []
    for target in scope.manifest.targets:
        own = [(index, image) for index, image in scope.images(target) if image.python]
        if not (target.python or own):
            continue
        scope.progress(f"resolve Python packages for {target.name}")
        known = scope.indexes or indexes.machine()
        found += _described(scope, target, _of_target(scope, target, known), known)
        for index, image in own:
            where = scope.where(f"images[{index}].python")
            mine = _described(scope, target, wheels.closure(image.python, [], target, known, where), known)
            found += mine
            images.append(
                LockedImage(
                    name=image.name, tag=image.tag, base=[], packages=[], python=[wheel.sha256 for wheel in mine]
                )
            )
    return Resolved([*found], images, projects=projects.locked(scope))


def _of_target(scope: Scope, target: Target, known: Indexes) -> list[wheels.Wheel]:
    """Return the wheels of everything but images."""
    if not target.python:
        return []
    wanted = scope.manifest.python
    local = [(project, scope.path.parent / project.path) for project in wanted.projects]
    chosen = wheels.closure(wanted.requirements, local, target, known, scope.where("python"))
    for name, group in scope.manifest.python_groups(target).items():
        chosen += wheels.closure(group.requirements, [], target, known, scope.where(f"python.groups.{name}"))
    return chosen


def _described(scope: Scope, target: Target, chosen: Sequence[wheels.Wheel], known: Indexes) -> list[PythonArtifact]:
    once = list({wheel.sha256: wheel for wheel in chosen}.values())
    if not once:
        return []
    with fetch.client(known.certificates, known.addresses) as http, ThreadPoolExecutor(DOWNLOADS) as pool:
        sizes = list(pool.map(lambda wheel: fetch.known_size(http, scope.cache, wheel.url, wheel.sha256), once))
    return [
        PythonArtifact(
            name=wheel.name,
            version=wheel.version,
            filename=wheel.filename,
            sha256=wheel.sha256,
            size=size,
            origin=wheel.url,
            targets=[target.name],
        )
        for wheel, size in zip(once, sizes, strict=True)
    ]
