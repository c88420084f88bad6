"""Rules of images: by whom a site wants them signed, held against the signatures that came with a bundle. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from common import image_references
from common.errors import Problem
from common.image_references import HUB
from reservoir.artifacts.image import cosign
from reservoir.artifacts.image.signed import signers
from reservoir.contents.artifact import ImageArtifact
from reservoir.contents.bundle import Bundle
from reservoir.scan.policy import SignedImages

HINT = (
    "ask the bundle's maker to lock the image with `signed_by` and this key; or let images of this name through in the "
    "policy, by an entry of `signed_images` without keys before this one"
)


def judge(bundle: Bundle, rules: Sequence[SignedImages]) -> Iterator[Problem]:
    """Yield each image of a bundle that is not signed by whom the rules ask for, whatever its maker says of it."""
    for image in bundle.of_kind(ImageArtifact):
        rule = next((rule for rule in rules if any(_names(pattern, image.name) for pattern in rule.images)), None)
        if rule is None or not rule.keys:
            continue
        keys = {name: cosign.read_key(pem.encode(), name) for name, pem in rule.keys.items()}
        if not signers(image, keys):
            count = len(image.metadata.signatures)
            said = f"none of the {count} signatures that came with it is" if count else "it came without a signature"
            reason = f"{said} by {' or '.join(keys)}, as the policy of this site asks"
            yield Problem(f"image {image.name}:{image.version}", reason, HINT)


def _names(pattern: str, name: str) -> bool:
    """Say whether a pattern names an image, as it is written or as Docker reads both."""
    short, whole = image_references.repository_of(name), image_references.qualified(name)
    written = {name} if image_references.registry_of(short) else {name, short}
    return any(fnmatchcase(one, pattern) for one in written) or any(fnmatchcase(whole, one) for one in _wholes(pattern))


def _wholes(pattern: str) -> Iterator[str]:
    """Yield what a pattern means with the registry and the folder that Docker adds.

    Of one that may stand for a registry nobody knows which, and `n*` of the hub means `library/nginx` and `node/app`.
    """
    registry, slash, _ = pattern.partition("/")
    if slash and not set(registry).isdisjoint("*?["):
        return
    yield image_references.qualified(pattern)
    below = pattern.removeprefix("index.").removeprefix(f"{HUB}/") if slash else pattern
    if "/" not in below:
        yield f"{HUB}/{below}"
