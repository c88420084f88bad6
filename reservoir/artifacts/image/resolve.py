"""The images of a lock that exist already; those that are built are parts of others' (see `built`)."""

from __future__ import annotations

from reservoir.artifacts.image.external import Puller
from reservoir.artifacts.kind import Resolved, Scope


def resolve(scope: Scope) -> Resolved:
    """Return every external image of the manifest with its parts, for every target."""
    targets = [target.name for target in scope.manifest.targets]
    pullers = [
        Puller(image, scope.path.parent, scope.where(f"external_images[{index}]"), scope.cache, scope.progress)
        for index, image in enumerate(scope.manifest.external_images)
    ]
    return Resolved([artifact for puller in pullers for artifact in puller.lock(targets)])
