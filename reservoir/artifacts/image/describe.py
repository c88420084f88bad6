"""The names of images and their parts elsewhere."""

from __future__ import annotations

from reservoir.artifacts.kind import Description, Purl
from reservoir.contents.artifact import ImageArtifact, ImagePart
from reservoir.contents.target import TargetRecord


def describe(
    artifact: ImageArtifact | ImagePart,
    target: TargetRecord | None,  # noqa: ARG001 - as every kind
) -> Description:
    """Return what others call an image; what is inside of it is described by itself."""
    digest = f"sha256:{artifact.sha256}"
    if isinstance(artifact, ImagePart):
        return Description(Purl("generic", None, artifact.filename, artifact.version, {"checksum": digest}), "file")
    space, _, name = artifact.name.rpartition("/")
    words = {"tag": artifact.version, "repository_url": artifact.name if space else ""}
    return Description(Purl("oci", None, name, digest, words), "container")
