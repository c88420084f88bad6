"""The Python part of a lock: every wheel that targets, their groups and their images need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from reservoir.artifacts.kind import TARGETS, Resolved, Resolving
from reservoir.artifacts.python import projects, sdists, wheels
from reservoir.contents.artifact import PythonArtifact
from reservoir.contents.lock import LockedImage
from reservoir.download import fetch
from reservoir.download.indexes import Indexes
from reservoir.download.threads import in_threads
from reservoir.manifest.model import Image, Target

DOWNLOADS = 8


def resolve(resolving: Resolving) -> Resolved:
    """Return the wheels of the requirements, the local projects, the groups and the images.

    The projects' own are left out, as a build makes them; images are resolved apart from all others.
    """
    targets = [target for target in resolving.manifest.targets if target.python or _images(resolving, target)]
    # asked once, before all targets begin at once
    if not targets:
        return Resolved(projects=projects.locked(resolving))
    known = resolving.indexes()
    built = sdists.locked(resolving, known)
    known = sdists.offered(resolving, known, built)
    origins = {one.wheel.sha256: one.wheel.url for one in built}
    found = in_threads(lambda target: _resolve(resolving, target, known, origins), targets, TARGETS)
    return Resolved.of([*found, Resolved(projects=projects.locked(resolving), sdists=built)])


def _images(resolving: Resolving, target: Target) -> list[tuple[int, Image]]:
    """Return the images of a target that have wheels of their own, each with its place in the manifest."""
    return [(index, image) for index, image in resolving.images(target) if image.python]


def _resolve(resolving: Resolving, target: Target, known: Indexes, origins: Mapping[str, str]) -> Resolved:
    """Return the wheels of one target and of its images; `origins` are those of what was built here."""
    resolving.progress(f"resolve Python packages for {target.name}")
    found = _described(resolving, target, _of_target(resolving, target, known), known)
    images = []
    for index, image in _images(resolving, target):
        where = resolving.where(f"images[{index}].python")
        mine = _described(resolving, target, wheels.closure(image.python, [], target, known, where), known)
        found += mine
        images.append(
            LockedImage(name=image.name, tag=image.tag, base=[], packages=[], python=[wheel.sha256 for wheel in mine])
        )
    told = [one.model_copy(update={"origin": origins.get(one.sha256, one.origin)}) for one in found]
    return Resolved([*told], images)


def _of_target(resolving: Resolving, target: Target, known: Indexes) -> list[wheels.Wheel]:
    """Return the wheels of everything but images."""
    if not target.python:
        return []
    wanted = resolving.manifest.python
    local = [(project, resolving.path.parent / project.path) for project in wanted.projects]
    chosen = wheels.closure(wanted.requirements, local, target, known, resolving.where("python"))
    for name, group in resolving.manifest.python_groups(target).items():
        chosen += wheels.closure(group.requirements, [], target, known, resolving.where(f"python.groups.{name}"))
    return chosen


def _described(
    resolving: Resolving, target: Target, chosen: Sequence[wheels.Wheel], known: Indexes
) -> list[PythonArtifact]:
    once = list({wheel.sha256: wheel for wheel in chosen}.values())
    if not once:
        return []
    with fetch.client(known.certificates, known.addresses) as http, ThreadPoolExecutor(DOWNLOADS) as pool:
        sizes = list(pool.map(lambda wheel: fetch.known_size(http, resolving.cache, wheel.url, wheel.sha256), once))
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
