"""From a manifest and its lock to a bundle: fetch what is missing, make wheels and images, check, sign."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from packaging.utils import parse_wheel_filename

from common.errors import InputError, IntegrityError, PenstockError
from common.progress import Progress, silent
from reservoir.artifacts.debian.apt import PrivateApt
from reservoir.artifacts.debian.resolve import private_apt
from reservoir.artifacts.image import external
from reservoir.artifacts.image import recipe as recipes
from reservoir.artifacts.python import wheels
from reservoir.artifacts.rpm import signature as rpm_signature
from reservoir.artifacts.rpm import source as rpm_source
from reservoir.bundle import documents
from reservoir.bundle import folder as bundles
from reservoir.contents.model import Artifact, Bundle, Lock, LockedProject, TargetRecord
from reservoir.download import fetch
from reservoir.download.cache import WORK, Cache, digest
from reservoir.lock import file as lock
from reservoir.manifest import credentials
from reservoir.manifest.model import Manifest, Target
from reservoir.settings import Settings
from reservoir.signing import ed25519, keychain

T = TypeVar("T")
DOWNLOADS = 4
DEBS_A_BATCH = 24
# wheels carry no time of their own: the earliest that a zip file can say
WHEEL_TIME = 315532800


@dataclass(frozen=True)
class Built:
    """A finished bundle; `changed` is false where the very same one was there already."""

    folder: Path
    bundle: Bundle
    changed: bool
    new_key: bool


@dataclass(frozen=True)
class _Plan:
    """What is to be built, from where, with which store."""

    wanted: Manifest
    locked: Lock
    folder: Path
    cache: Cache
    progress: Progress


def make(manifest_path: Path, lock_path: Path, below: Path, settings: Settings, progress: Progress = silent) -> Built:
    """Build the bundle of a manifest into the folder `below`.

    Raises ConflictError where the lock does not match the manifest, and the errors of what it fetches and builds;
    a folder under the final name is always whole.
    """
    locked = lock.read(lock_path)
    wanted = lock.require_match(locked, manifest_path, lock_path)
    cache = Cache(settings.cache)
    with cache.alone():
        new_key = not settings.signing_key.exists()
        key = ed25519.new_key(settings.signing_key) if new_key else ed25519.read_key(settings.signing_key)
        chain = keychain.of_key(settings.signing_key, key)
        plan = _Plan(wanted, locked, manifest_path.parent, cache, progress)
        bundle = _bundle(plan, settings.timestamp)
        _check_blobs(bundle, cache, progress)
        progress("write the bill of materials")
        texts = documents.make(bundle, locked.images, cache, wanted.security, plan.folder)
        hashes = {name: sha256(text).hexdigest() for name, text in texts.items()}
        bundle = bundle.model_copy(update={"documents": hashes})
        final = bundles.directory(bundle, below)
        if (same := _same(final, bundle, key)) is not None:
            return Built(final, same, changed=False, new_key=new_key)
        progress("write the bundle")
        blobs = [cache.path(blob) for blob in bundle.sizes()]
        folder = bundles.assemble(bundle, blobs, key, below, texts, chain=chain)
        return Built(folder, bundle, changed=True, new_key=new_key)


def _bundle(plan: _Plan, timestamp: int) -> Bundle:
    """Bring every part into the cache and return the bundle's list."""
    wanted = plan.wanted
    for part in plan.locked.of_kind("rpm-part"):
        plan.cache.keep(part.metadata["text"].encode())
    _download(plan)
    rpm_signature.check(plan.locked, plan.cache)
    own = _projects(plan)
    images = _images(plan)
    fetched = [a.model_copy(update={"origin": credentials.public(a.origin)}) for a in plan.locked.artifacts]
    return Bundle(
        name=wanted.name,
        version=wanted.version,
        created=datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        holds=plan.locked.holds,
        targets=[
            TargetRecord(name=t.name, os=t.os, release=t.release, arch=t.arch, python=t.python, osv=t.osv)
            for t in wanted.targets
        ],
        artifacts=[*fetched, *own, *images],
        installer={name: sha256(bundles.installer(name)).hexdigest() for name in bundles.INSTALLER},
    )


def _download(plan: _Plan) -> None:
    """Bring every locked artifact into the cache."""
    cache = plan.cache
    external.fetch(plan.wanted, plan.locked, plan.folder, cache, plan.progress)
    missing = {a.sha256: a for a in plan.locked.artifacts if not cache.has(a.sha256, a.size)}
    debs = [artifact for artifact in missing.values() if artifact.kind == "debian"]
    others = [artifact for artifact in missing.values() if artifact.kind != "debian"]
    note = _counter("download", sum(artifact.size for artifact in missing.values()), plan.progress)
    if others:
        indexes = wheels.machine_indexes()
        addresses = [*indexes.addresses, *plan.wanted.addresses, *rpm_source.addresses(plan.wanted.targets)]
        with fetch.client(indexes.certificates, addresses) as http:
            _in_parallel(others, lambda a: fetch.fetch(http, cache, a.origin, sha256=a.sha256, size=a.size, note=note))
    for target in plan.wanted.targets:
        mine = [artifact for artifact in debs if artifact.targets[0] == target.name]
        if mine:
            apt = private_apt(cache, target, plan.wanted, plan.folder)
            batches = [mine[start : start + DEBS_A_BATCH] for start in range(0, len(mine), DEBS_A_BATCH)]
            _in_parallel(batches, partial(_download_debs, apt, cache, note))


def _download_debs(apt: PrivateApt, cache: Cache, note: Callable[[int], None], batch: Sequence[Artifact]) -> None:
    """Download some Debian packages into the cache; those that came before a failure are kept."""
    try:
        apt.download([(a.origin, a.sha256, cache.partial(a.sha256)) for a in batch])
    except PenstockError:
        for artifact in batch:
            path = cache.partial(artifact.sha256)
            if path.is_file() and path.stat().st_size == artifact.size:
                cache.accept(path, artifact.sha256, artifact.origin)
        raise
    for artifact in batch:
        cache.accept(cache.partial(artifact.sha256), artifact.sha256, artifact.origin)
        note(artifact.size)


def _in_parallel(items: Sequence[T], act: Callable[[T], object]) -> None:
    """Act on all items; the first failure stops what has not started yet."""
    with ThreadPoolExecutor(DOWNLOADS) as pool:
        futures = [pool.submit(act, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _projects(plan: _Plan) -> list[Artifact]:
    """Build the wheels of the local projects."""
    artifacts = []
    for project in plan.locked.projects:
        targets = [target for target in plan.wanted.targets if target.python]
        own, unfit = _project(plan, project, targets)
        if own.targets or not unfit:
            artifacts.append(own)
        # what was built for this machine alone is built for each other one as well
        for arch in sorted({target.arch for target in unfit}):
            mine = [target for target in unfit if target.arch == arch]
            other, still_unfit = _project(plan, project, mine, arch)
            if still_unfit:
                names = ", ".join(target.name for target in still_unfit)
                raise InputError(
                    f"what was built here, {other.filename}, does not run on {names}",
                    where=project.path,
                    hint="build on a machine of the target's architecture, or leave target or project out",
                )
            artifacts.append(other)
    return artifacts


def _project(
    plan: _Plan, project: LockedProject, targets: Sequence[Target], arch: str = ""
) -> tuple[Artifact, list[Target]]:
    """Build the wheel of a project, for this machine or another `arch`; return it and the targets it does not fit."""
    plan.progress(f"build the wheel of {project.name}{arch and f' for {arch}'}")
    with tempfile.TemporaryDirectory(prefix=WORK, dir=plan.cache.root) as folder:
        path = (plan.folder / project.path).resolve()
        wheel = wheels.build(path, Path(folder), wheels.machine_indexes(), WHEEL_TIME, arch)
        name, version, _, _ = parse_wheel_filename(wheel.name)
        blob, size = plan.cache.add(wheel)
    fit = [target for target in targets if wheels.runs_on(wheel.name, target)]
    artifact = Artifact(
        kind="python",
        name=name,
        version=str(version),
        filename=wheel.name,
        sha256=blob,
        size=size,
        origin=f"built from {project.path}",
        targets=[target.name for target in fit],
        metadata={"extras": project.extras},
    )
    return artifact, [target for target in targets if target not in fit]


def _images(plan: _Plan) -> list[Artifact]:
    """Build the images from the parts in the cache, or take them from an earlier build; shared layers stand once."""
    known = {artifact.sha256: artifact for artifact in plan.locked.artifacts}
    found: dict[tuple[str, str], Artifact] = {}
    for recipe in plan.wanted.images:
        parts = next(part for part in plan.locked.images if (part.name, part.tag) == (recipe.name, recipe.tag))
        target = plan.wanted.target(recipe.target)
        made = recipes.Builder(recipe, target, parts, known, plan.cache, plan.progress).make()
        found[recipe.reference, made.image.sha256] = made.image
        for part in made.parts:
            old = found.setdefault(("", part.sha256), part)
            found["", part.sha256] = old.model_copy(update={"targets": sorted({*old.targets, *part.targets})})
    return list(found.values())


def _check_blobs(bundle: Bundle, cache: Cache, progress: Progress) -> None:
    """Hash everything once more: the cache may be old, and links to it may have been written through."""
    sizes = bundle.sizes()
    note = _counter("check", sum(sizes.values()), progress)

    def check(blob: str) -> None:
        path = cache.path(blob)
        if digest(path) != blob:
            path.unlink()
            raise IntegrityError(
                "a file in the cache was changed; it was deleted", where=str(path), hint="run the build again"
            )
        note(sizes[blob])

    _in_parallel(list(sizes), check)


def _same(final: Path, bundle: Bundle, key: Ed25519PrivateKey) -> Bundle | None:
    """Return the bundle under the final name if it holds the very same things, signed by the same key."""
    try:
        present, _, _ = bundles.read_signed(final, key.public_key())
    except PenstockError:
        return None
    parts = [*(final / bundles.BLOBS / blob for blob in present.sizes()), *(final / name for name in present.documents)]
    whole = all(part.is_file() for part in parts)
    same = present.model_copy(update={"created": bundle.created}) == bundle
    return present if same and whole else None


def _counter(step: str, total: int, progress: Progress) -> Callable[[int], None]:
    """Return a function that adds up bytes from several threads and reports the sum."""
    guard = threading.Lock()
    done = 0

    def note(count: int) -> None:
        nonlocal done
        with guard:
            done += count
            progress(step, done, total)

    return note
