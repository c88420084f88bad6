"""The images that a build makes from the packages of its bundle."""

from __future__ import annotations

from reservoir.artifacts.image.recipe import Builder
from reservoir.artifacts.kind import Order
from reservoir.contents.artifact import ImageArtifact, ImagePart


def make(order: Order) -> list[ImageArtifact | ImagePart]:
    """Build the images from the parts in the cache, or take them from an earlier build; shared layers stand once."""
    known = {artifact.sha256: artifact for artifact in order.locked.artifacts}
    found: dict[tuple[str, str], ImageArtifact | ImagePart] = {}
    for recipe in order.manifest.images:
        parts = next(part for part in order.locked.images if (part.name, part.tag) == (recipe.name, recipe.tag))
        target = order.manifest.target(recipe.target)
        made = Builder(recipe, target, parts, known, order.cache, order.progress).make()
        found[recipe.reference, made.image.sha256] = made.image
        for part in made.parts:
            old = found.setdefault(("", part.sha256), part)
            found["", part.sha256] = old.model_copy(update={"targets": sorted({*old.targets, *part.targets})})
    return list(found.values())
