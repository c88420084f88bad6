"""Checks of images: what stands between them and their publication."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from common.errors import IntegrityError, Problem
from reservoir.artifacts.image import oci
from reservoir.artifacts.kind import AGAIN, Find, one_each
from reservoir.contents.artifact import ImageArtifact, ImagePart
from reservoir.contents.bundle import Bundle

# far more than any manifest or index is long, and what registries take at most
LARGEST = 16 << 20
# what registries take, and the programs that ask them
NAME = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def check(bundles: Sequence[Bundle], find: Find) -> Iterator[Problem]:
    """Yield each name that two images have or no registry takes, digests of another file, and parts in no bundle."""
    images, problems = named(carried(bundles))
    yield from problems
    known = {one.sha256 for bundle in bundles for one in bundle.of_kind(ImageArtifact, ImagePart)}
    for image in images.values():
        yield from _said(image)
        yield from _parts(image, image.sha256, known, find, set())


def named(images: Iterable[ImageArtifact]) -> tuple[dict[tuple[str, str], ImageArtifact], list[Problem]]:
    """Return images by name and tag, and the problems of those that are not one image's."""
    return one_each(
        images,
        lambda image: (image.name, image.version),
        lambda image: Problem(
            f"{image.name}:{image.version}",
            "two different images have one name",
            "give one of them another tag, in its bundle",
        ),
    )


def carried(bundles: Sequence[Bundle]) -> list[ImageArtifact]:
    """Return the images of all bundles; where the site made one of the same name itself, the carried one counts."""
    found = [image for bundle in bundles if not bundle.own for image in bundle.of_kind(ImageArtifact)]
    names = {(image.name, image.version) for image in found}
    own = [image for bundle in bundles if bundle.own for image in bundle.of_kind(ImageArtifact)]
    return [*found, *(image for image in own if (image.name, image.version) not in names)]


def _said(image: ImageArtifact) -> Iterator[Problem]:
    """Yield what the list says of an image and no registry could serve."""
    title = f"{image.name}:{image.version}"
    if not NAME.fullmatch(image.name):
        yield Problem(title, f"no registry takes the name {image.name}", AGAIN)
    if not TAG.fullmatch(image.version):
        yield Problem(title, f"no registry takes the tag {image.version[:60]!r}", AGAIN)
    if image.metadata.digest != f"sha256:{image.sha256}":
        yield Problem(
            title, f"its digest is said to be {image.metadata.digest[:80]!r}, not sha256:{image.sha256}", AGAIN
        )


def _parts(image: ImageArtifact, sha256: str, known: set[str], find: Find, seen: set[str]) -> Iterator[Problem]:
    """Yield what is wrong below a manifest or an index; what is not at hand is not looked into."""
    title = f"{image.name}:{image.version}"
    path = find(sha256)
    if path is None or sha256 in seen:
        return
    seen.add(sha256)
    if path.stat().st_size > LARGEST:
        yield Problem(title, f"its manifest has {path.stat().st_size} bytes, {LARGEST} are allowed", AGAIN)
        return
    try:
        document = oci.read(path.read_bytes(), title)
    except IntegrityError as error:
        yield from error.problems
        return
    for part in document.parts:
        if part.sha256 not in known:
            yield Problem(title, f"{part.digest} is in no bundle", AGAIN)
        elif part in document.manifests:
            yield from _parts(image, part.sha256, known, find, seen)
