"""The storage that docker-registry reads; that it does is tried in `tests/integration/reservoir/test_images.py`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common import files
from common.errors import IntegrityError
from reservoir.artifacts.image import oci, storage
from reservoir.contents.artifact import ImageArtifact
from reservoir.intake.store import Store
from reservoir.publication.publish import publish, rollback
from tests.unit.reservoir.parts import image_blobs, image_parts, make_bundle, publish_versions, take

HERE = "images/registry/docker/registry/v2"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return publish_versions(tmp_path / "site", Ed25519PrivateKey.generate(), 2)


def served(site: Path) -> str:
    """The digest that the registry finds under a tag."""
    tag = Store(site).current / HERE / "repositories/demo/python/_manifests/tags/1"
    return (tag / "current/link").read_text()


def digest(site: Path, version: str) -> str:
    (bundle,) = [bundle for bundle in Store(site).imported().values() if bundle.version == version]
    return bundle.of_kind(ImageArtifact)[0].metadata.digest


def test_an_image_takes_no_space_of_its_own(site: Path) -> None:
    current = Store(site).current.resolve()
    blobs = [path for path in (current / HERE / "blobs").rglob("*") if path.is_file()]
    assert {path.parent.name for path in blobs} == {
        path.name for path in (current / "images/oci/blobs/sha256").iterdir()
    }
    assert all(path.samefile(Store(site).blobs / path.parent.name) for path in blobs)
    assert files.space([current / "images/registry"]).own < 2000


@pytest.mark.parametrize(("architectures", "twice"), [(["amd64"], "layers"), (["amd64", "arm64"], "manifests")])
def test_what_an_image_names_twice_is_there_once(tmp_path: Path, architectures: list[str], twice: str) -> None:
    """BuildKit makes two equal layers of two steps that change nothing; architectures share what is of neither."""
    folder = tmp_path / "blobs"
    folder.mkdir()
    said = json.loads((folder / image_blobs(folder, architectures=architectures)).read_bytes())
    content = oci.encode(said | {twice: [*said[twice], said[twice][0]]})
    sha256 = hashlib.sha256(content).hexdigest()
    (folder / sha256).write_bytes(content)
    made = image_parts(folder, sha256)
    take(make_bundle(tmp_path, Ed25519PrivateKey.generate(), made=made), tmp_path / "site")
    stored = (publish(tmp_path / "site").folder / HERE / "blobs").rglob("data")
    assert {path.parent.name for path in stored} == {described.sha256 for described, _ in made}
    assert served(tmp_path / "site") == f"sha256:{sha256}"


def test_a_rollback_goes_back_in_the_images_too(site: Path) -> None:
    assert served(site) == digest(site, "2.0")
    rollback(site)
    assert served(site) == digest(site, "1.0")
    assert digest(site, "1.0") != digest(site, "2.0")


def test_a_publication_of_an_earlier_release_gets_it_when_it_is_served(site: Path) -> None:
    for folder in Store(site).publications.iterdir():
        shutil.rmtree(folder / "images/registry")
    rollback(site, 1)
    assert served(site) == digest(site, "1.0")
    shutil.rmtree(Store(site).current / "images/registry")
    assert publish(site, unattended=True).changed
    assert served(site) == digest(site, "1.0")
    assert not publish(site, unattended=True).changed


def test_what_was_deleted_from_it_comes_back(site: Path) -> None:
    shutil.rmtree(Store(site).current / HERE / "repositories/demo")
    assert publish(site).changed
    assert served(site) == digest(site, "2.0")


def test_what_a_power_cut_left_empty_is_written_again(site: Path) -> None:
    link = Store(site).current / HERE / "repositories/demo/python/_manifests/tags/1/current/link"
    link.write_text("")
    assert publish(site).changed
    assert served(site) == digest(site, "2.0")


def test_the_registry_may_read_it_whoever_wrote_it(site: Path) -> None:
    shutil.rmtree(Store(site).current / "images/registry")
    before = os.umask(0o077)
    try:
        publish(site)
    finally:
        os.umask(before)
    top = Store(site).current / "images/registry"
    assert all(path.stat().st_mode & 0o004 for path in (top, *top.rglob("*")))
    assert all(path.stat().st_mode & 0o001 for path in (top, *top.rglob("*")) if path.is_dir())


def test_a_part_that_is_gone_is_told(site: Path) -> None:
    images = Store(site).current / "images"
    shutil.rmtree(images / "registry")
    (images / "oci/blobs/sha256" / digest(site, "2.0").removeprefix("sha256:")).unlink()
    with pytest.raises(IntegrityError, match=r"demo/python:1: a part of it is gone: .*import its bundle again"):
        storage.write(images)
