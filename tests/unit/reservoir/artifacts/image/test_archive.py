from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from common.errors import IntegrityError
from reservoir.artifacts.image import archive, oci
from tests.unit.reservoir.parts import image_blobs


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member))}


def test_an_archive_names_the_very_blobs_of_the_image(tmp_path: Path) -> None:
    sha256 = image_blobs(tmp_path, body="x")
    archive.write(tmp_path / "image.tar", tmp_path, sha256, "demo/x:1")
    found = contents(tmp_path / "image.tar")
    (entry,) = json.loads(found["manifest.json"])
    assert entry["RepoTags"] == ["demo/x:1"]
    manifest = oci.read((tmp_path / sha256).read_bytes(), "demo")
    named = [part.sha256 for part in manifest.parts]
    assert [hashlib.sha256(found[name]).hexdigest() for name in (entry["Config"], *entry["Layers"])] == named


def test_a_changed_or_missing_blob_is_refused(tmp_path: Path) -> None:
    sha256 = image_blobs(tmp_path, body="x")
    layer = oci.read((tmp_path / sha256).read_bytes(), "demo").layers[0].sha256
    (tmp_path / layer).write_bytes(b"something else")
    with pytest.raises(IntegrityError, match="the hash of the blob does not hold"):
        archive.write(tmp_path / "image.tar", tmp_path, sha256, "demo/x:1")
    (tmp_path / layer).unlink()
    with pytest.raises(IntegrityError, match="a blob is missing"):
        archive.write(tmp_path / "image.tar", tmp_path, sha256, "demo/x:1")


def test_an_image_of_several_architectures_has_no_archive(tmp_path: Path) -> None:
    sha256 = image_blobs(tmp_path, body="x", architectures=("amd64", "arm64"))
    with pytest.raises(IntegrityError, match="several architectures"):
        archive.write(tmp_path / "image.tar", tmp_path, sha256, "demo/x:1")
