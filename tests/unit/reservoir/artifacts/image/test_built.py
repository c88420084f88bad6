from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from common.progress import silent
from reservoir.artifacts.image import built
from reservoir.artifacts.image.oci import MANIFEST
from reservoir.artifacts.image.recipe import Builder, Made
from reservoir.artifacts.kind import Order
from reservoir.contents.artifact import ImageArtifact, ImageMetadata
from reservoir.contents.lock import Lock, LockedImage
from reservoir.download import indexes
from reservoir.download.cache import Cache
from reservoir.manifest import reading

TEXT = """\
schema: 1
name: small
version: "1"
targets:
  - {name: debian12, release: bookworm, python: "3.11", bootstrap: true}
  - {name: debian13, release: trixie, python: "3.13", bootstrap: true}
images:
  - {name: demo, tag: "1", target: debian12, packages: [dash]}
  - {name: demo, tag: "2", target: debian13, packages: [dash]}
  - {name: demo, tag: "3", target: debian12, packages: [dash]}
"""


def artifact(builder: Builder) -> ImageArtifact:
    sha256 = builder.recipe.tag * 64
    return ImageArtifact(
        name=builder.recipe.name,
        version=builder.recipe.tag,
        filename="demo",
        sha256=sha256,
        size=1,
        origin="here",
        targets=[builder.target.name],
        metadata=ImageMetadata(
            tag=builder.recipe.tag,
            digest=f"sha256:{sha256}",
            session=False,
            media_type=MANIFEST,
            architectures=["amd64"],
        ),
    )


def test_targets_go_side_by_side_and_images_of_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, made = threading.Barrier(2, timeout=30), []

    def make(builder: Builder) -> Made:
        if builder.recipe.tag != "3":
            both.wait()
        made.append(builder.recipe.tag)
        return Made(artifact(builder), [])

    monkeypatch.setattr(Builder, "make", make)
    manifest = reading.load(TEXT, "manifest.yml")
    images = [LockedImage(name=image.name, tag=image.tag, base=[], packages=[]) for image in manifest.images]
    lock = Lock(manifest="0" * 64, artifacts=[], images=images)
    order = Order(manifest, lock, tmp_path, Cache(tmp_path), silent, indexes.machine, httpx.Client)
    assert [(image.version, image.targets) for image in built.make(order)] == [
        ("1", ["debian12"]),
        ("2", ["debian13"]),
        ("3", ["debian12"]),
    ]
    assert made.index("1") < made.index("3")
