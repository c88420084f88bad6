"""The images that a build makes from the packages of its bundle."""

from __future__ import annotations

from reservoir.artifacts.image.recipe import Builder, Made
from reservoir.artifacts.kind import Order
from reservoir.contents.artifact import ImageArtifact, ImagePart
from reservoir.download.threads import in_threads

# targets at once: a build waits for the disk now and then, and each takes the space of a whole system meanwhile
AT_ONCE = 2


def make(order: Order) -> list[ImageArtifact | ImagePart]:
    """Build the images from the parts in the cache, or take them from an earlier build; shared layers stand once."""
    # those of one target one after another, as they share their first layers
    targets = dict.fromkeys(recipe.target for recipe in order.manifest.images)
    made = dict(pair for pairs in in_threads(lambda target: _of(order, target), targets, AT_ONCE) for pair in pairs)
    found: dict[tuple[str, str], ImageArtifact | ImagePart] = {}
    for recipe in order.manifest.images:
        image = made[recipe.reference].image
        found[recipe.reference, image.sha256] = image
        for part in made[recipe.reference].parts:
            old = found.setdefault(("", part.sha256), part)
            found["", part.sha256] = old.model_copy(update={"targets": sorted({*old.targets, *part.targets})})
    return list(found.values())


def _of(order: Order, target: str) -> list[tuple[str, Made]]:
    """Return the images of a target by their references."""
    known = {artifact.sha256: artifact for artifact in order.locked.artifacts}
    made = []
    for recipe in order.manifest.images:
        if recipe.target == target:
            parts = next(part for part in order.locked.images if (part.name, part.tag) == (recipe.name, recipe.tag))
            builder = Builder(recipe, order.manifest.target(target), parts, known, order.cache, order.progress)
            made.append((recipe.reference, builder.make()))
    return made
