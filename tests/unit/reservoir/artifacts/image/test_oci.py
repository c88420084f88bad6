from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import IntegrityError
from reservoir.artifacts.image import oci
from reservoir.artifacts.image.external import repository
from reservoir.contents.artifact import ImageArtifact
from tests.unit.reservoir.parts import artifact, image_blobs


def image(folder: Path, sha256: str) -> ImageArtifact:
    words = {"tag": "1", "digest": f"sha256:{sha256}", "session": True, "media_type": "", "architectures": []}
    return artifact(folder / sha256, ImageArtifact, "demo/x", "1", **words)


def documents(folder: Path) -> dict[str, bytes]:
    """The blobs of a folder that are manifests."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.stat().st_size < 5000}


def test_every_part_of_an_index_stands_once(tmp_path: Path) -> None:
    top = image_blobs(tmp_path, architectures=("amd64", "arm64"))
    parts = oci.artifacts(image(tmp_path, top), documents(tmp_path))
    assert sorted(part.name for part in parts) == ["configuration", "configuration", "layer", "manifest", "manifest"]
    assert {part.sha256 for part in parts} | {top} == {path.name for path in tmp_path.iterdir()}
    assert all((tmp_path / part.sha256).stat().st_size == part.size for part in parts)


def test_a_part_says_nothing_of_the_image_that_it_was_found_in(tmp_path: Path) -> None:
    first = image_blobs(tmp_path)
    one, other = (image(tmp_path, first).model_copy(update={"name": name}) for name in ("demo/x", "demo/y"))
    assert oci.artifacts(one, documents(tmp_path)) == oci.artifacts(other, documents(tmp_path))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"config": {}}', b'{"manifests": []}'])
def test_what_is_no_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(IntegrityError, match=r"demo: not the manifest of an image.*take the image anew"):
        oci.read(content, "demo")


def test_a_document_says_what_it_is_even_without_its_own_word() -> None:
    entry = {"mediaType": oci.CONFIG, "digest": oci.digest(b"x"), "size": 1}
    assert oci.read(oci.encode({"config": entry}), "").kind == oci.MANIFEST
    assert oci.read(oci.encode({"manifests": [entry]}), "").kind == oci.INDEX
    assert oci.read(oci.encode({"config": entry, "mediaType": oci.DOCKER_MANIFEST}), "").kind == oci.DOCKER_MANIFEST


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("docker://host/name", "docker://host/name"),
        ("docker://host/name:1", "docker://host/name"),
        ("docker://host:5000/folder/name", "docker://host:5000/folder/name"),
        ("docker://host:5000/folder/name:1", "docker://host:5000/folder/name"),
        ("docker://host:5000/name@sha256:00", "docker://host:5000/name"),
        ("docker://host:5000/name:1@sha256:00", "docker://host:5000/name"),
    ],
)
def test_an_address_without_tag_and_digest(source: str, expected: str) -> None:
    assert repository(source) == expected
