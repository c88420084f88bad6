"""From a manifest to a lock: the complete closure of every target, with sizes and hashes."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from common import files
from common.document import check, parse
from common.errors import ConflictError, InputError, UnavailableError
from common.progress import Progress, silent
from reservoir.artifacts.debian import resolve as debian_lock
from reservoir.artifacts.image import external
from reservoir.artifacts.kind import Resolved, Scope
from reservoir.artifacts.python import resolve as pypi_lock
from reservoir.artifacts.python import wheels
from reservoir.contents.model import Artifact, HeldVersions, Lock, LockedImage, LockedProject
from reservoir.download import fetch
from reservoir.download.cache import Cache, room_on
from reservoir.manifest import credentials, reading
from reservoir.manifest.model import Manifest


def make(path: Path, cache: Cache, progress: Progress = silent) -> Lock:
    """Return the closure of the manifest at `path`; raises InputError for what does not exist or does not fit."""
    wanted = read_manifest(path)
    with cache.alone():
        return _make(wanted, path, cache, progress)


def _make(wanted: Manifest, path: Path, cache: Cache, progress: Progress) -> Lock:
    artifacts: dict[tuple[str, str, str], Artifact] = {}
    images: list[LockedImage] = []
    holds: list[HeldVersions] = []
    for target in wanted.targets:
        found = _resolve(Scope(wanted, path, target, cache, progress))
        for artifact in found.artifacts:
            _merge(artifacts, artifact)
        images += found.images
        holds += found.holds
    outside = external.lock(wanted, path, cache, progress)
    for artifact in [*_files(wanted, cache), *outside]:
        _merge(artifacts, artifact)
    return Lock(
        manifest=wanted.digest(),
        artifacts=sorted(artifacts.values(), key=lambda a: (a.kind, a.name, a.version, a.filename)),
        holds=holds,
        projects=[
            LockedProject(
                name=wheels.project_name(path.parent / project.path),
                path=project.path,
                extras=list(project.extras),
                dependencies=wheels.project_dependencies(path.parent / project.path, project.extras),
            )
            for project in wanted.python.projects
        ],
        images=images,
    )


def _resolve(scope: Scope) -> Resolved:
    """Return everything that a target needs."""
    name = scope.target.name
    scope.progress(f"resolve Python packages for {name}")
    artifacts = pypi_lock.resolve(scope)
    if scope.target.os == "debian":
        scope.progress(f"resolve Debian packages for {name}")
        packages = debian_lock.resolve(scope)
    else:
        scope.progress(f"resolve RPM packages for {name}")
        packages = _rpm(scope)
    images = []
    for image in packages.images:
        index, recipe = next(
            (i, r) for i, r in enumerate(scope.manifest.images) if (r.name, r.tag) == (image.name, image.tag)
        )
        found = pypi_lock.resolve_image(scope, index, recipe)
        artifacts += found
        images.append(image.model_copy(update={"python": [artifact.sha256 for artifact in found]}))
    return Resolved([*artifacts, *packages.artifacts], images, packages.holds)


def _rpm(scope: Scope) -> Resolved:
    """Resolve RPM packages by what a site, which locks nothing, does without."""
    try:
        from reservoir.artifacts.rpm import resolve as rpm_lock
    except ImportError as error:
        raise UnavailableError(f"{error.name} is not installed", where="rpm", hint="install penstock[build]") from error
    return rpm_lock.resolve(scope)


def read_manifest(path: Path) -> Manifest:
    """Return the manifest at `path`; raises InputError that names line, reason and hint of every problem."""
    return reading.load(_text(path, "write a manifest"), str(path))


def read(path: Path) -> Lock:
    """Return the lock at `path`; raises InputError where it is missing or damaged."""
    text = _text(path, "make it with `penstock reservoir lock`")
    try:
        return Lock.model_validate_json(text)
    except ValidationError:
        # slow, but knows the lines
        return check(Lock, parse(text, str(path)))


def write(lock: Lock, path: Path) -> bool:
    """Write the lock beside and rename it; return whether the file changed."""
    text = json.dumps(lock.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False) + "\n"
    if path.is_file() and path.read_text() == text:
        return False
    with room_on(path.parent):
        files.write(path, text)
    return True


def require_match(lock: Lock, path: Path, lock_path: Path) -> Manifest:
    """Return the manifest at `path`; raises ConflictError where the lock was made from another one."""
    wanted = read_manifest(path)
    hint = f"run `penstock reservoir lock {path}`"
    if lock.manifest != wanted.digest():
        raise ConflictError("the lock does not match the manifest", where=str(lock_path), hint=hint)
    for project in lock.projects:
        if wheels.project_dependencies(path.parent / project.path, project.extras) != project.dependencies:
            raise ConflictError(
                f"the lock does not match what the project {project.name} requires now", where=str(lock_path), hint=hint
            )
    return wanted


def matches(lock_path: Path, path: Path) -> bool:
    """Say whether there is a lock that belongs to the manifest as it is now."""
    if not lock_path.is_file():
        return False
    try:
        require_match(read(lock_path), path, lock_path)
    except (ConflictError, InputError):
        return False
    return True


def _files(wanted: Manifest, cache: Cache) -> list[Artifact]:
    """Return the files that the manifest lists, for every target."""
    if not wanted.files:
        return []
    targets = [target.name for target in wanted.targets]
    with fetch.client(wheels.machine_indexes().certificates, wanted.addresses) as http:
        return [
            Artifact(
                kind="file",
                name=file.name,
                version=file.version,
                filename=file.name,
                sha256=file.sha256,
                size=fetch.known_size(http, cache, file.url, file.sha256),
                origin=file.url,
                targets=targets,
            )
            for file in wanted.files
        ]


def _merge(artifacts: dict[tuple[str, str, str], Artifact], new: Artifact) -> None:
    """Keep each file once; one that serves two targets says so, one that has two names stands twice.

    Who may fetch it is read from this machine's configuration whenever it is fetched, and stands in no lock.
    """
    new = new.model_copy(update={"origin": credentials.public(new.origin)})
    key = (new.kind, new.filename, new.sha256)
    old = artifacts.get(key, new)
    artifacts[key] = old.model_copy(update={"targets": sorted({*old.targets, *new.targets})})


def _text(path: Path, hint: str) -> str:
    try:
        return path.read_text()
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=str(path), hint=hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), hint="correct the path") from error
