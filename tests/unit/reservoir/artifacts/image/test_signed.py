"""Signatures of images that travel: checked again without a registry, and by the site's own keys alone."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from reservoir.artifacts.image import cosign, oci
from reservoir.artifacts.image.signed import signers
from reservoir.contents.artifact import ImageArtifact
from tests.unit.reservoir.parts import image_blobs

MAKER, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
KEYS = {"maker": MAKER.public_key()}


def payload(digest: str, kind: str = cosign.KIND) -> bytes:
    return json.dumps({"critical": {"image": {"docker-manifest-digest": digest}, "type": kind}}).encode()


def signature(digest: str, key: ec.EllipticCurvePrivateKey = MAKER, **more: Any) -> dict[str, Any]:
    """Sign as cosign does; the public key that travels along is the maker's, whoever signed."""
    text = payload(digest, **more)
    return cosign.kept(key.sign(text, ec.ECDSA(SHA256())), text, MAKER.public_key()).model_dump()


def image(content: bytes, **metadata: Any) -> ImageArtifact:
    said = {"tag": "1", "digest": oci.digest(content), "session": False, "media_type": oci.INDEX, "architectures": []}
    return ImageArtifact.model_validate(
        {
            "name": "vendor/tool",
            "version": "1",
            "filename": "vendor_tool_1.json",
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "origin": "a test",
            "targets": [],
            "metadata": said | metadata,
        }
    )


@pytest.fixture
def index(tmp_path: Path) -> bytes:
    return (tmp_path / image_blobs(tmp_path, architectures=("amd64", "arm64", "s390x"))).read_bytes()


def children(index: bytes) -> list[str]:
    return [entry["digest"] for entry in json.loads(index)["manifests"]]


def test_a_key_that_signed_the_image_is_found_among_several(index: bytes) -> None:
    signed = image(index, signatures=[signature(oci.digest(index), OTHER), signature(oci.digest(index))])
    assert signers(signed, KEYS | {"third": ec.generate_private_key(ec.SECP256R1()).public_key()}) == ["maker"]
    assert signers(image(index), KEYS) == []


def test_the_key_that_travels_proves_nothing(index: bytes) -> None:
    assert signers(image(index, signatures=[signature(oci.digest(index), OTHER)]), KEYS) == []


@pytest.mark.parametrize("broken", ["signature", "payload"])
def test_what_is_no_base64_is_no_signature(index: bytes, broken: str) -> None:
    assert signers(image(index, signatures=[signature(oci.digest(index)) | {broken: "é"}]), KEYS) == []


def test_a_signature_of_another_image_or_of_another_kind_does_not_count(index: bytes) -> None:
    for one in (signature("sha256:" + "0" * 64), signature(oci.digest(index), kind="atomic container signature")):
        assert signers(image(index, signatures=[one]), KEYS) == []


def test_what_the_registry_is_told_must_be_what_was_signed(index: bytes) -> None:
    told = image(index, signatures=[signature(oci.digest(index))], digest="sha256:" + "0" * 64)
    assert signers(told, KEYS) == []


def test_one_architecture_is_signed_by_the_index_that_names_it(tmp_path: Path, index: bytes) -> None:
    signatures = [signature(oci.digest(index))]
    one = (tmp_path / children(index)[1].removeprefix("sha256:")).read_bytes()
    assert signers(image(one, signatures=signatures, signed=index.decode()), KEYS) == ["maker"]
    assert signers(image(one, signatures=signatures), KEYS) == [], "without the index nobody can tell"
    assert signers(image(b"another", signatures=signatures, signed=index.decode()), KEYS) == []
    assert signers(image(one, signatures=signatures, signed="no index"), KEYS) == []


def test_some_of_an_index_are_signed_with_it_where_nothing_else_was_changed(index: bytes) -> None:
    signatures, some = [signature(oci.digest(index))], oci.reduced(index, children(index)[:2])
    words: dict[str, Any] = {"signatures": signatures, "signed": index.decode()}
    assert signers(image(some, made=some.decode(), **words), KEYS) == ["maker"]
    config = {"mediaType": oci.CONFIG, "digest": "sha256:" + "1" * 64, "size": 1}
    swapped = json.loads(some)
    swapped["manifests"][0]["platform"]["architecture"] = "arm64"
    for other in (oci.encode(json.loads(some) | {"config": config}), oci.encode(swapped)):
        assert signers(image(other, made=other.decode(), **words), KEYS) == []
        assert signers(image(other, made=some.decode(), **words), KEYS) == []


def test_metadata_say_nothing_of_signatures_where_there_are_none(index: bytes) -> None:
    assert {"signatures", "signed", "made"}.isdisjoint(image(index).metadata.model_dump())
    one = image(index, signatures=[signature(oci.digest(index))])
    assert ImageArtifact.model_validate_json(one.model_dump_json()) == one
    assert base64.b64decode(one.metadata.signatures[0].payload) == payload(oci.digest(index))
