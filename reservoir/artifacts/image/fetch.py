"""The download of images that exist already."""

from __future__ import annotations

from collections.abc import Sequence

from reservoir.artifacts.image.external import Puller
from reservoir.artifacts.kind import Order
from reservoir.contents.artifact import ImageArtifact, ImagePart


def fetch(order: Order, missing: Sequence[ImageArtifact | ImagePart]) -> None:  # noqa: ARG001 - manifests say it
    """Bring every part of the locked external images into the cache that lacks some."""
    known = {(image.name, image.version): image for image in order.locked.of_kind(ImageArtifact)}
    for index, image in enumerate(order.manifest.external_images):
        puller = Puller(image, order.folder, f"external_images[{index}]", order.cache, order.progress)
        puller.fetch(known[image.name, image.tag])
