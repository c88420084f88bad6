"""Rules of images: by whom a site wants them signed, held against the signatures that came with a bundle. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from common.errors import Problem
from reservoir.artifacts.image import cosign
from reservoir.artifacts.image.signed import signers
from reservoir.contents.artifact import ImageArtifact
from reservoir.contents.bundle import Bundle
from reservoir.scan.policy import SignedImages

HUB = "docker.io"
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
    """Say whether a pattern names an image, as it is written or as Docker reads both: `x` is `library/x` of `HUB`."""
    whole = _full(pattern)
    return fnmatchcase(name, pattern) or (whole.startswith(HUB) and fnmatchcase(_full(name), whole))


def _full(name: str) -> str:
    """Return a name with the registry and the folder that Docker adds; not where a part may stand for these."""
    registry, _, rest = name.partition("/")
    if not rest:
        return f"{HUB}/library/{name}"
    if registry == HUB:
        return name if "/" in rest or "*" in rest else f"{HUB}/library/{rest}"
    return name if set(registry) & set(".*?[") else f"{HUB}/{name}"
