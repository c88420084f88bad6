"""The Debian part of a lock: the closure of every group and image of a target."""

from __future__ import annotations

from pathlib import Path

from reservoir.artifacts.debian.apt import Deb, PrivateApt
from reservoir.artifacts.kind import Resolved, Scope
from reservoir.contents import holds
from reservoir.contents.model import Artifact, LockedImage
from reservoir.download.cache import Cache
from reservoir.manifest.model import Manifest, Target


def resolve(scope: Scope) -> Resolved:
    """Return the closure of every group for the target, and what each of the target's images consists of."""
    groups = scope.manifest.debian_groups(scope.target)
    images = [(i, image) for i, image in enumerate(scope.manifest.images) if image.target == scope.target.name]
    if not (groups or images or scope.target.bootstrap):
        return Resolved([])
    apt = private_apt(scope.cache, scope.target, scope.manifest, scope.path.parent)
    apt.update()
    base = apt.bootstrap() if scope.target.bootstrap else []
    debs = list(base)
    for name, group in groups.items():
        where = scope.where(f"debian.{name}")
        debs += apt.closure(group.packages, where, recommends=group.recommends) if group.packages else []
    locked = []
    below = {deb.sha256 for deb in base}
    for index, image in images:
        packages = apt.closure(image.packages, scope.where(f"images[{index}].packages")) if image.packages else []
        debs += packages
        parts = [deb.sha256 for deb in packages if deb.sha256 not in below]
        locked.append(LockedImage(name=image.name, tag=image.tag, base=[deb.sha256 for deb in base], packages=parts))
    once = {deb.sha256: deb for deb in debs}
    artifacts = [_artifact(deb, scope.target) for deb in once.values()]
    held = holds.of_target(scope.manifest, scope.target, artifacts, str(scope.path))
    return Resolved(artifacts, images=locked, holds=held)


def private_apt(cache: Cache, target: Target, wanted: Manifest, folder: Path) -> PrivateApt:
    """Return apt for a target of the manifest in `folder`; its root stays in the cache."""
    return PrivateApt(cache.root / "apt" / f"{target.name}-{target.release}-{target.arch}", target, wanted, folder)


def _artifact(deb: Deb, target: Target) -> Artifact:
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
