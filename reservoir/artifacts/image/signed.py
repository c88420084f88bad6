"""Signatures that travel with an image: whoever has the keys checks them again, without a registry. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from common.errors import IntegrityError
from reservoir.artifacts.image import cosign, oci
from reservoir.artifacts.image.cosign import PublicKey
from reservoir.contents.artifact import ImageArtifact


def signers(image: ImageArtifact, keys: Mapping[str, PublicKey]) -> list[str]:
    """Return the names of those `keys` that signed an image; the keys that travel with it prove nothing."""
    digest = _signed(image)
    made = image.metadata.signatures if digest else []
    return [name for name, key in keys.items() if any(cosign.confirms(one, digest, key) for one in made)]


def _signed(image: ImageArtifact) -> str:
    """Return the digest that signatures have to be about: the image's, or that of the index it is of; else nothing."""
    said, digest = image.metadata, f"sha256:{image.sha256}"
    if said.digest != digest:
        return ""
    if said.signed is None:
        return digest
    index = said.signed.encode()
    try:
        inside = [entry.digest for entry in oci.read(index, image.filename).manifests]
        taken = [entry.digest for entry in oci.read(said.made.encode(), image.filename).manifests] if said.made else []
    except IntegrityError:
        return ""
    # a part of an index is one of its entries, or the very index that is made of some of them
    is_part = digest in inside or (taken and oci.digest(oci.reduced(index, taken)) == digest)
    return oci.digest(index) if is_part else ""
