"""Images as registries know them: manifests, indexes, and the parts that these name by hash. Pure: touches no file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from common.errors import IntegrityError
from reservoir.contents.artifact import ImageArtifact, ImagePart, ImagePartMetadata

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MEDIA_TYPES = (MANIFEST, INDEX, DOCKER_MANIFEST, DOCKER_LIST)


class Platform(BaseModel):
    """What kind of machine a manifest is for."""

    architecture: str
    os: str


class Descriptor(BaseModel):
    """One blob as a manifest or an index names it; `size` counts bytes."""

    media_type: str = Field(alias="mediaType")
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0)
    platform: Platform | None = None

    @property
    def sha256(self) -> str:
        """Return the hash alone."""
        return self.digest.removeprefix("sha256:")


class OciDocument(BaseModel):
    """A manifest (`config` and `layers`) or an index (`manifests`)."""

    media_type: str = Field(default="", alias="mediaType")
    config: Descriptor | None = None
    layers: list[Descriptor] = []
    manifests: list[Descriptor] = []

    @property
    def parts(self) -> list[Descriptor]:
        """Return every blob that it names, in order."""
        return [*([self.config] if self.config else []), *self.layers, *self.manifests]

    @property
    def kind(self) -> str:
        """Return the media type; documents of OCI need not say it."""
        return self.media_type or (MANIFEST if self.config else INDEX)


@dataclass(frozen=True)
class Layer:
    """A layer that was made here: the hash and size of its file, and the hash of the tar inside."""

    sha256: str
    size: int
    diff_id: str


def read(content: bytes, where: str) -> OciDocument:
    """Return a manifest or an index; raises IntegrityError, which names `where`, for anything else."""
    try:
        document = OciDocument.model_validate_json(content)
    except ValidationError as error:
        raise IntegrityError(
            f"not the manifest of an image: {error.errors()[0]['msg']}", where=where, hint="take the image anew"
        ) from error
    if not document.config and not document.manifests:
        raise IntegrityError("not the manifest of an image: it names nothing", where=where, hint="take the image anew")
    return document


def digest(content: bytes) -> str:
    """Return the name that registries give to a blob."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def encode(value: object) -> bytes:
    """Return the one spelling of a document that is made here."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def reduced(index: bytes, digests: Collection[str]) -> bytes:
    """Return an index of some entries of another one alone, each as it was."""
    original = json.loads(index)
    return encode(original | {"manifests": [entry for entry in original["manifests"] if entry["digest"] in digests]})


def config(
    layers: Sequence[Layer], *, arch: str, created: str, start: Mapping[str, Any], steps: Sequence[str]
) -> bytes:
    """Return the configuration of an image; `start` says how its containers start, `steps` what made each layer."""
    return encode(
        {
            "architecture": arch,
            "os": "linux",
            "created": created,
            "config": dict(start),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.diff_id}" for layer in layers]},
            "history": [{"created": created, "created_by": f"penstock: {step}"} for step in steps],
        }
    )


def manifest(configuration: bytes, layers: Sequence[Layer]) -> bytes:
    """Return the manifest of an image."""
    return encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(configuration), "size": len(configuration)},
            "layers": [
                {"mediaType": LAYER, "digest": f"sha256:{layer.sha256}", "size": layer.size} for layer in layers
            ],
        }
    )


def filename(reference: str) -> str:
    """Return the name of an image's manifest among files: that of `penstock/python:3.11` is `penstock_python_3.11`."""
    return re.sub(r"[/:]", "_", reference) + ".json"


def artifacts(image: ImageArtifact, documents: Mapping[str, bytes]) -> list[ImagePart]:
    """Return every part below `image`, each once; `documents` are its manifests, and its index, by sha256."""
    found: dict[str, ImagePart] = {}
    waiting = [image.sha256]
    while waiting:
        document = read(documents[waiting.pop()], image.filename)
        parts = [("layer", part) for part in document.layers] + [("manifest", part) for part in document.manifests]
        parts += [("configuration", document.config)] if document.config else []
        for word, part in parts:
            if part.sha256 not in found:
                waiting += [part.sha256] if word == "manifest" else []
                found[part.sha256] = _part(image, word, part)
    return list(found.values())


def _part(image: ImageArtifact, word: str, part: Descriptor) -> ImagePart:
    """Describe a part without a word on its image: several images may share it."""
    return ImagePart(
        name=word,
        version=part.sha256[:12],
        filename=f"{word}-{part.sha256[:12]}",
        sha256=part.sha256,
        size=part.size,
        origin=image.origin,
        targets=image.targets,
        metadata=ImagePartMetadata(media_type=part.media_type),
    )
