"""The images of a lock that exist already; those that are built are parts of others' (see `built`)."""

from __future__ import annotations

from reservoir.artifacts.image.external import Puller
from reservoir.artifacts.kind import Resolved, Resolving


def resolve(resolving: Resolving) -> Resolved:
    """Return every external image of the manifest with its parts, for every target."""
    targets = [target.name for target in resolving.manifest.targets]
    pullers = [
        Puller(
            image,
            resolving.path.parent,
            resolving.where(f"external_images[{index}]"),
            resolving.cache,
            resolving.progress,
        )
        for index, image in enumerate(resolving.manifest.external_images)
    ]
    return Resolved([artifact for puller in pullers for artifact in puller.lock(targets)])
