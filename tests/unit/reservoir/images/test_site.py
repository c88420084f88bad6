from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir.cache import Cache
from reservoir.errors import ConflictError
from reservoir.images import site
from reservoir.intake import take
from reservoir.publication import publish
from reservoir.store import Store
from tests.unit.reservoir.parts import image_blobs, image_parts, make_bundle

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
