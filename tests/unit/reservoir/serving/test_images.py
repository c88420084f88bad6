from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError
from reservoir.artifacts.debian import kind as debian
from reservoir.artifacts.image.recipe import Builder
from reservoir.artifacts.kind import Resolved, Resolving
from reservoir.artifacts.python import kind as python
from reservoir.contents.lock import LockedImage
from reservoir.download.cache import Cache
from reservoir.intake.store import Store
from reservoir.publication.prune import prune
from reservoir.publication.publish import publish
from reservoir.serving import images as site
from tests.unit.reservoir.parts import image_blobs, image_parts, make_bundle, take

RECIPE = "schema: 1\nname: {name}\ntag: '{tag}'\ntarget: debian12\npackages: [bash]\n"


@pytest.mark.parametrize(("name", "tag"), [("demo-python", "1"), ("demo", "python-1"), ("demo/python-1", "_")])
def test_an_image_never_takes_the_place_of_another_whose_bundle_has_the_same_name(
    tmp_path: Path, key: Ed25519PrivateKey, name: str, tag: str
) -> None:
    root = tmp_path / "site"
    folder = tmp_path / "image"
    folder.mkdir()
    made = image_parts(folder, image_blobs(folder), "demo/python", "1")
    take(make_bundle(tmp_path, key, name="local-demo-python-1", made=made), root)
    publish(root)
    path = tmp_path / "recipe.yml"
    path.write_text(RECIPE.format(name=name, tag=tag))
    before = Store(root).imported().keys()
    with pytest.raises(
        ConflictError, match=r"local-demo-python-1 is that of demo/python:1.*choose another name or tag"
    ):
        site.build(path, root, Cache(tmp_path / "cache"), 1_800_000_000)
    assert Store(root).imported().keys() == before


def test_nothing_is_pruned_while_the_packages_of_an_image_are_chosen(
    tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "site"
    take(make_bundle(tmp_path, key), root)
    publish(root)
    path = tmp_path / "recipe.yml"
    path.write_text(RECIPE.format(name="demo/own", tag="1"))

    def resolve(resolving: Resolving) -> None:
        prune(root)

    monkeypatch.setattr(debian, "resolve", resolve)
    with pytest.raises(ConflictError, match="another import or publication is running"):
        site.build(path, root, Cache(tmp_path / "cache"), 1_800_000_000)
    assert prune(root).nothing


def test_others_may_prune_while_an_image_is_made(
    tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "site"
    take(make_bundle(tmp_path, key), root)
    publish(root)
    path = tmp_path / "recipe.yml"
    path.write_text(RECIPE.format(name="demo/own", tag="1"))
    chosen = LockedImage(name="demo/own", tag="1", base=[], packages=[])

    class Made(Exception):  # noqa: N818
        """The making of the image was reached, and the store was free."""

    def make(builder: Builder) -> None:
        prune(root)
        raise Made

    monkeypatch.setattr(debian, "resolve", lambda resolving: Resolved(images=[chosen]))
    monkeypatch.setattr(python, "resolve", lambda resolving: Resolved())
    monkeypatch.setattr(Builder, "make", make)
    with pytest.raises(Made):
        site.build(path, root, Cache(tmp_path / "cache"), 1_800_000_000)
