"""The way from a manifest to a lock: the complete closure of every target, with sizes and hashes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from common.progress import Progress, silent
from reservoir.artifacts.kind import Resolved, Resolving, locked_images
from reservoir.artifacts.kinds import KINDS
from reservoir.contents.artifact import Artifact
from reservoir.contents.lock import Lock
from reservoir.download.cache import Cache
from reservoir.lock.file import read_manifest
from reservoir.manifest import credentials


def make(path: Path, cache: Cache, progress: Progress = silent) -> Lock:
    """Return the closure of the manifest at `path`; raises InputError for what does not exist or does not fit."""
    wanted = read_manifest(path)
    resolving = Resolving(wanted, path, cache, progress)
    with cache.alone(progress):
        found = Resolved.of([kind.resolve(resolving) for kind in KINDS])
    targets = [target.name for target in wanted.targets]
    return Lock(
        manifest=wanted.digest(),
        artifacts=sorted(_merged(found.artifacts), key=lambda a: (a.kind, a.name, a.version, a.filename)),
        version_sets=sorted(found.version_sets, key=lambda one: targets.index(one.target)),
        projects=found.projects,
        sdists=found.sdists,
        images=locked_images(wanted, found.images),
    )


def _merged(found: Iterable[Artifact]) -> Iterable[Artifact]:
    """Return each file once; one that serves two targets says so, one that has two names stands twice.

    Who may fetch it is read from this machine's configuration whenever it is fetched, and stands in no lock.
    """
    artifacts: dict[tuple[str, str, str], Artifact] = {}
    for one in found:
        new = one.model_copy(update={"origin": credentials.public(one.origin)})
        key = (new.kind, new.filename, new.sha256)
        old = artifacts.get(key, new)
        artifacts[key] = old.model_copy(update={"targets": sorted({*old.targets, *new.targets})})
    return artifacts.values()
