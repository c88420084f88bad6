"""Signatures of images as cosign keeps them: in the image's own repository, under a tag made of its digest."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from common.errors import InputError
from reservoir.contents.artifact import ImageSignature

ANNOTATION = "dev.cosignproject.cosign/signature"
PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
KIND = "cosign container image signature"

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey


@dataclass(frozen=True)
class Signature:
    """One signature and the hash of the payload that it is over."""

    payload: str
    value: bytes


def read_key(pem: bytes, where: str) -> PublicKey:
    """Return a public key as `cosign public-key` prints it; raises InputError for anything else."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey):
        raise InputError("not a public key of cosign", where=where, hint="give the maker's cosign.pub, in PEM")
    return key


def write_key(key: PublicKey) -> str:
    """Return a public key as PEM."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def tag(digest: str) -> str:
    """Return the tag under which the signatures of an image lie."""
    return f"{digest.replace(':', '-')}.sig"


def signatures(manifest: bytes) -> Iterator[Signature]:
    """Yield the signatures that the document under that tag lists; what is none of them does not count."""
    for layer in _mapping(_json(manifest)).get("layers") or []:
        said = _mapping(layer)
        value = _mapping(said.get("annotations")).get(ANNOTATION)
        digest = str(said.get("digest", ""))
        if said.get("mediaType") != PAYLOAD or not isinstance(value, str) or not digest.startswith("sha256:"):
            continue
        try:
            yield Signature(digest.removeprefix("sha256:"), base64.b64decode(value, validate=True))
        except binascii.Error:
            continue


def signs(payload: bytes, digest: str) -> bool:
    """Say whether a payload, whose signature holds, is about the image with this digest."""
    critical = _mapping(_mapping(_json(payload)).get("critical"))
    return critical.get("type") == KIND and _mapping(critical.get("image")).get("docker-manifest-digest") == digest


def holds(signature: bytes, payload: bytes, keys: Sequence[PublicKey]) -> bool:
    """Say whether one of the keys made a signature of the payload."""
    return any(_made_by(key, signature, payload) for key in keys)


def kept(signature: bytes, payload: bytes, key: PublicKey) -> ImageSignature:
    """Return a signature with all that is needed to check it again without a registry."""
    return ImageSignature(payload=_text(payload), signature=_text(signature), key=write_key(key))


def confirms(one: ImageSignature, digest: str, key: PublicKey) -> bool:
    """Say whether a signature that was kept is by this key, and about the image with this digest."""
    try:
        signature, payload = (base64.b64decode(text, validate=True) for text in (one.signature, one.payload))
    except ValueError:
        return False
    return holds(signature, payload, [key]) and signs(payload, digest)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _made_by(key: PublicKey, signature: bytes, payload: bytes) -> bool:
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, payload, ec.ECDSA(SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, payload, padding.PKCS1v15(), SHA256())
        else:
            key.verify(signature, payload)
    except InvalidSignature:
        return False
    return True


def _json(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
