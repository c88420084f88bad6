"""From a manifest to a lock: the complete closure of every target, with sizes and hashes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from pydantic import ValidationError

from reservoir import fetch, files, manifest, wheels
from reservoir.apt import Deb, PrivateApt
from reservoir.cache import Cache, room_on
from reservoir.document import check, parse
from reservoir.errors import ConflictError, InputError
from reservoir.manifest import Manifest, Target
from reservoir.model import Artifact, Lock, LockedImage, LockedProject
from reservoir.progress import Progress, silent

DOWNLOADS = 8


def make(path: Path, cache: Cache, progress: Progress = silent) -> Lock:
    """Return the closure of the manifest at `path`; raises InputError for what does not exist or does not fit."""
    wanted = read_manifest(path)
    with cache.alone():
        return _make(wanted, path, cache, progress)


def _make(wanted: Manifest, path: Path, cache: Cache, progress: Progress) -> Lock:
    artifacts: dict[tuple[str, str], Artifact] = {}
    images: list[LockedImage] = []
    for target in wanted.targets:
        progress(f"resolve Python packages for {target.name}")
        for artifact in _python(wanted, path, target, cache):
            _merge(artifacts, artifact)
        if wanted.debian or wanted.images or target.bootstrap:
            progress(f"resolve Debian packages for {target.name}")
            debs, locked = _debian(wanted, path, target, cache)
            for deb in debs:
                _merge(artifacts, _deb_artifact(deb, target))
            images += locked
    for artifact in _files(wanted, cache):
        _merge(artifacts, artifact)
    return Lock(
        manifest=wanted.digest(),
        artifacts=sorted(artifacts.values(), key=lambda a: (a.kind, a.name, a.version, a.filename)),
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


def read_manifest(path: Path) -> Manifest:
    """Return the manifest at `path`; raises InputError that names line, reason and cure of every problem."""
    return manifest.load(_text(path, "write a manifest"), str(path))


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
    cure = f"run `penstock reservoir lock {path}`"
    if lock.manifest != wanted.digest():
        raise ConflictError("the lock does not match the manifest", where=str(lock_path), cure=cure)
    for project in lock.projects:
        if wheels.project_dependencies(path.parent / project.path, project.extras) != project.dependencies:
            raise ConflictError(
                f"the lock does not match what the project {project.name} requires now", where=str(lock_path), cure=cure
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


def apt_root(cache: Cache, target: Target) -> Path:
    """Return where the private apt root of a target lies."""
    return cache.root / "apt" / f"{target.name}-{target.release}-{target.arch}"


def _python(wanted: Manifest, path: Path, target: Target, cache: Cache) -> list[Artifact]:
    """Return the wheels that the target needs, the local projects' own left out."""
    indexes = wheels.machine_indexes()
    projects = [(project, path.parent / project.path) for project in wanted.python.projects]
    chosen = wheels.closure(wanted.python.requirements, projects, target, indexes, f"{path}: python")
    with fetch.client(indexes.certificates) as http, ThreadPoolExecutor(DOWNLOADS) as pool:
        sizes = list(pool.map(lambda wheel: _size(http, cache, wheel.url, wheel.sha256), chosen))
    return [
        Artifact(
            kind="python",
            name=wheel.name,
            version=wheel.version,
            filename=wheel.filename,
            sha256=wheel.sha256,
            size=size,
            origin=wheel.url,
            targets=[target.name],
        )
        for wheel, size in zip(chosen, sizes, strict=True)
    ]


def _debian(wanted: Manifest, path: Path, target: Target, cache: Cache) -> tuple[list[Deb], list[LockedImage]]:
    """Return the closure of every group for the target, and what each of the target's images consists of."""
    apt = PrivateApt(apt_root(cache, target), target)
    apt.update()
    base = apt.bootstrap() if target.bootstrap else []
    debs = list(base)
    for group, names in wanted.debian.items():
        debs += apt.closure(names, f"{path}: debian.{group}") if names else []
    images = []
    for index, image in enumerate(wanted.images):
        if image.target == target.name:
            packages = apt.closure(image.packages, f"{path}: images[{index}].packages") if image.packages else []
            debs += packages
            below = {deb.sha256 for deb in base}
            images.append(
                LockedImage(
                    name=image.name,
                    tag=image.tag,
                    base=[deb.sha256 for deb in base],
                    packages=[deb.sha256 for deb in packages if deb.sha256 not in below],
                )
            )
    return list({deb.sha256: deb for deb in debs}.values()), images


def _files(wanted: Manifest, cache: Cache) -> list[Artifact]:
    """Return the files that the manifest lists, for every target."""
    if not wanted.files:
        return []
    targets = [target.name for target in wanted.targets]
    with fetch.client(wheels.machine_indexes().certificates) as http:
        return [
            Artifact(
                kind="file",
                name=file.name,
                version=file.version,
                filename=file.name,
                sha256=file.sha256,
                size=_size(http, cache, file.url, file.sha256),
                origin=file.url,
                targets=targets,
            )
            for file in wanted.files
        ]


def _size(http: httpx.Client, cache: Cache, url: str, sha256: str) -> int:
    """Return the size in bytes, from the cache where the file is there already."""
    cached = cache.path(sha256)
    return cached.stat().st_size if cached.is_file() else fetch.size_of(http, url)


def _deb_artifact(deb: Deb, target: Target) -> Artifact:
    return Artifact(
        kind="debian",
        name=deb.name,
        version=deb.version,
        filename=deb.filename,
        sha256=deb.sha256,
        size=deb.size,
        origin=deb.uri,
        targets=[target.name],
        metadata={"stanza": deb.stanza},
    )


def _merge(artifacts: dict[tuple[str, str], Artifact], new: Artifact) -> None:
    """Keep each file once; one that serves two targets says so."""
    key = (new.kind, new.sha256)
    old = artifacts.get(key, new)
    artifacts[key] = old.model_copy(update={"targets": sorted({*old.targets, *new.targets})})


def _text(path: Path, cure: str) -> str:
    try:
        return path.read_text()
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=str(path), cure=cure) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), cure="correct the path") from error
