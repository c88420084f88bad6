"""The published images: one OCI layout in which images share their blobs, and a list for people and programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from common.errors import ConflictError, IntegrityError
from reservoir.artifacts.image import oci, storage
from reservoir.artifacts.image.check import carried, named
from reservoir.artifacts.image.storage import LAYOUT, LIST
from reservoir.artifacts.kind import Staging
from reservoir.contents.artifact import ImageArtifact, ImagePart


def publish(staging: Staging) -> None:
    """Write the images of every bundle below `images`."""
    staging.progress("publish images")
    parts = [part for bundle in staging.bundles for part in bundle.of_kind(ImagePart)]
    write(staging.tree / "images", _chosen(staging), parts, staging.place)


def write(
    tree: Path, images: Iterable[ImageArtifact], parts: Iterable[ImagePart], place: Callable[[str, Path], None]
) -> None:
    """Write the images below `tree`; `place(sha256, path)` puts a blob at a path.

    Raises ConflictError where two images have one name and tag, IntegrityError where a part is in no bundle.
    """
    found, problems = named(images)
    if problems:
        raise ConflictError.of(problems)
    layout = tree / LAYOUT
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    known = {artifact.sha256 for artifact in (*parts, *found.values())}
    entries = []
    for _, image in sorted(found.items()):
        document = _place(image, image.sha256, blobs, known, place)
        entries.append(_entry(image, document, (blobs / image.sha256).stat().st_size))
    (layout / "oci-layout").write_bytes(oci.encode({"imageLayoutVersion": "1.0.0"}))
    (layout / "index.json").write_bytes(oci.encode({"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": entries}))
    listed = {"images": [_listed(image) for _, image in sorted(found.items())]}
    (tree / LIST).write_text(json.dumps(listed, indent=1))
    storage.write(tree)


def _chosen(staging: Staging) -> list[ImageArtifact]:
    """Return the images that are served, and tell of those that the site made and are not."""
    chosen = carried(staging.bundles)
    for image in (image for bundle in staging.bundles if bundle.own for image in bundle.of_kind(ImageArtifact)):
        if image not in chosen:
            title = f"{image.name}:{image.version}"
            staging.progress(f"image {title} comes with a bundle now; the one made here is not served")
    return chosen


def _place(
    image: ImageArtifact, sha256: str, blobs: Path, known: set[str], place: Callable[[str, Path], None]
) -> oci.OciDocument:
    """Put a manifest or an index, and all below it, into the layout."""
    path = blobs / sha256
    if not path.exists():
        place(sha256, path)
    document = oci.read(path.read_bytes(), f"{image.name}:{image.version}")
    for part in document.parts:
        if part.sha256 not in known:
            raise IntegrityError(
                f"{part.digest} is in no bundle", where=f"{image.name}:{image.version}", hint="build its bundle again"
            )
        if part in document.manifests:
            _place(image, part.sha256, blobs, known, place)
        elif not (blobs / part.sha256).exists():
            place(part.sha256, blobs / part.sha256)
    return document


def _entry(image: ImageArtifact, document: oci.OciDocument, size: int) -> dict[str, Any]:
    """Return what the layout's own index says about an image."""
    return {
        "mediaType": document.kind,
        "digest": image.metadata.digest,
        "size": size,
        "annotations": {"org.opencontainers.image.ref.name": f"{image.name}:{image.version}"},
    }


def _listed(image: ImageArtifact) -> dict[str, Any]:
    """Return what the list says about an image."""
    return {
        "name": image.name,
        "tag": image.version,
        "digest": image.metadata.digest,
        "session": image.metadata.session,
        "architectures": image.metadata.architectures,
    }
