"""The Python part of a lock: every wheel that a target, its groups and its images need."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from reservoir.artifacts.kind import Scope
from reservoir.artifacts.python import wheels
from reservoir.contents.model import Artifact
from reservoir.download import fetch
from reservoir.manifest.model import Image

DOWNLOADS = 8


def resolve(scope: Scope) -> list[Artifact]:
    """Return the wheels of the requirements, the local projects and the groups; the projects' own are left out."""
    if not scope.target.python:
        return []
    wanted = scope.manifest.python
    indexes = scope.indexes or wheels.machine_indexes()
    projects = [(project, scope.path.parent / project.path) for project in wanted.projects]
    chosen = wheels.closure(wanted.requirements, projects, scope.target, indexes, scope.where("python"))
    for name, group in scope.manifest.python_groups(scope.target).items():
        where = scope.where(f"python.groups.{name}")
        chosen += wheels.closure(group.requirements, [], scope.target, indexes, where)
    return _described(scope, chosen, indexes)


def resolve_image(scope: Scope, index: int, image: Image) -> list[Artifact]:
    """Return the wheels of one image, resolved by themselves; `index` is its place in the manifest."""
    if not image.python:
        return []
    indexes = scope.indexes or wheels.machine_indexes()
    chosen = wheels.closure(image.python, [], scope.target, indexes, scope.where(f"images[{index}].python"))
    return _described(scope, chosen, indexes)


def _described(scope: Scope, chosen: Sequence[wheels.Wheel], indexes: wheels.Indexes) -> list[Artifact]:
    once = list({wheel.sha256: wheel for wheel in chosen}.values())
    with fetch.client(indexes.certificates, indexes.addresses) as http, ThreadPoolExecutor(DOWNLOADS) as pool:
        sizes = list(pool.map(lambda wheel: fetch.known_size(http, scope.cache, wheel.url, wheel.sha256), once))
    return [
        Artifact(
            kind="python",
            name=wheel.name,
            version=wheel.version,
            filename=wheel.filename,
            sha256=wheel.sha256,
            size=size,
            origin=wheel.url,
            targets=[scope.target.name],
        )
        for wheel, size in zip(once, sizes, strict=True)
    ]
