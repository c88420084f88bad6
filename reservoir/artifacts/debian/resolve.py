"""The Debian part of a lock: the closure of every group and image of every target."""

from __future__ import annotations

from functools import partial

from reservoir.artifacts.debian.apt import Deb, private_apt
from reservoir.artifacts.kind import TARGETS, Resolved, Resolving
from reservoir.contents import version_sets
from reservoir.contents.artifact import DebianArtifact, DebianMetadata
from reservoir.contents.lock import LockedImage
from reservoir.download.threads import in_threads
from reservoir.manifest.model import Target


def resolve(resolving: Resolving) -> Resolved:
    """Return the closure of every group of the Debian targets, and what each of their images consists of."""
    targets = [target for target in resolving.manifest.targets if target.os == "debian"]
    return Resolved.of(in_threads(partial(_resolve, resolving), targets, TARGETS))


def _resolve(resolving: Resolving, target: Target) -> Resolved:
    resolving.progress(f"resolve Debian packages for {target.name}")
    groups = resolving.manifest.debian_groups(target)
    images = resolving.images(target)
    if not (groups or images or target.bootstrap):
        return Resolved()
    apt = private_apt(resolving.cache, target, resolving.manifest, resolving.path.parent)
    apt.update()
    base = apt.bootstrap() if target.bootstrap else []
    debs = list(base)
    for name, group in groups.items():
        where = resolving.where(f"debian.{name}")
        debs += apt.closure(group.packages, where, recommends=group.recommends) if group.packages else []
    locked = []
    below = {deb.sha256 for deb in base}
    for index, image in images:
        packages = apt.closure(image.packages, resolving.where(f"images[{index}].packages")) if image.packages else []
        debs += packages
        parts = [deb.sha256 for deb in packages if deb.sha256 not in below]
        locked.append(LockedImage(name=image.name, tag=image.tag, base=[deb.sha256 for deb in base], packages=parts))
    once = {deb.sha256: deb for deb in debs}
    artifacts = [_artifact(deb, target) for deb in once.values()]
    versions = version_sets.of_target(resolving.manifest, target, artifacts, str(resolving.path))
    return Resolved([*artifacts], images=locked, version_sets=versions)


def _artifact(deb: Deb, target: Target) -> DebianArtifact:
    return DebianArtifact(
        name=deb.name,
        version=deb.version,
        filename=deb.filename,
        sha256=deb.sha256,
        size=deb.size,
        origin=deb.uri,
        targets=[target.name],
        metadata=DebianMetadata(stanza=deb.stanza),
    )
