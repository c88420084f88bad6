from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from common.errors import ConflictError, IntegrityError
from reservoir.artifacts.image import publish as tree
from reservoir.contents.artifact import ImageArtifact, ImagePart, of_kind
from tests.unit.reservoir.parts import image_blobs, image_parts


class Blobs:
    """A store of blobs that knows what was placed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.placed: list[str] = []

    def image(self, name: str, tag: str, body: str) -> tuple[ImageArtifact, list[ImagePart]]:
        found = [part for part, _ in image_parts(self.folder, image_blobs(self.folder, body), name, tag)]
        (image,) = of_kind(found, ImageArtifact)
        return image, of_kind(found, ImagePart)

    def place(self, sha256: str, path: Path) -> None:
        self.placed.append(sha256)
        os.link(self.folder / sha256, path)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    (tmp_path / "blobs").mkdir()
    return Blobs(tmp_path / "blobs")


def test_shared_parts_are_placed_once(blobs: Blobs, tmp_path: Path) -> None:
    first, parts = blobs.image("demo/a", "1", "same")
    second = first.model_copy(update={"version": "2"})
    tree.write(tmp_path / "images", [second, first], parts, blobs.place)
    assert sorted(blobs.placed) == sorted({first.sha256, *(part.sha256 for part in parts)})
    listed = json.loads((tmp_path / "images/index.json").read_text())["images"]
    assert [(image["name"], image["tag"]) for image in listed] == [("demo/a", "1"), ("demo/a", "2")]
    entries = json.loads((tmp_path / "images/oci/index.json").read_text())["manifests"]
    assert [entry["annotations"]["org.opencontainers.image.ref.name"] for entry in entries] == ["demo/a:1", "demo/a:2"]


def test_two_images_of_one_name_are_refused(blobs: Blobs, tmp_path: Path) -> None:
    (first, some), (second, others) = (blobs.image("demo/a", "1", body) for body in ("one", "other"))
    with pytest.raises(ConflictError, match=r"demo/a:1: two different images have one name"):
        tree.write(tmp_path / "images", [first, second], [*some, *others], blobs.place)


def test_a_part_that_no_bundle_has_is_told(blobs: Blobs, tmp_path: Path) -> None:
    image, parts = blobs.image("demo/a", "1", "x")
    layer = next(part for part in parts if part.name == "layer")
    with pytest.raises(IntegrityError, match=f"demo/a:1: sha256:{layer.sha256} is in no bundle"):
        tree.write(tmp_path / "images", [image], [part for part in parts if part != layer], blobs.place)


def test_no_images_are_an_empty_list(tmp_path: Path, blobs: Blobs) -> None:
    tree.write(tmp_path / "images", [], [], blobs.place)
    assert json.loads((tmp_path / "images/index.json").read_text()) == {"images": []}
