from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from reservoir import archive
from reservoir.cache import digest


def root(folder: Path, names: list[str]) -> Path:
    """Make the same root file system with its files written in another order."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(0o755)
    return folder


def write(folder: Path, names: list[str]) -> tuple[Path, str]:
    folder.mkdir()
    layer = archive.pack(root(folder / "root", names), folder / "layer", 1000)
    path = folder / "image.tar"
    config = {"Cmd": ["/bin/sh"]}
    made = archive.write(path, layer, reference="demo/x:1", arch="amd64", config=config, created="2000-01-01T00:00:00Z")
    return path, made


def test_the_same_root_gives_the_same_bits(tmp_path: Path) -> None:
    first, second = (write(tmp_path / n, names) for n, names in (("1", ["a/b", "c"]), ("2", ["c", "a/b"])))
    os.utime(tmp_path / "2/root/c", (5, 2000))
    assert digest(first[0]) == digest(second[0])
    assert first[1] == second[1]
    assert write(tmp_path / "3", ["a/b", "d"])[1] != first[1]


def test_an_archive_is_an_oci_layout_and_loadable(tmp_path: Path) -> None:
    path, made = write(tmp_path / "1", ["bin/sh"])
    with tarfile.open(path) as tar:

        def blob(name: str) -> bytes:
            member = tar.extractfile(f"blobs/sha256/{name.removeprefix('sha256:')}")
            assert member
            content = member.read()
            assert hashlib.sha256(content).hexdigest() == name.removeprefix("sha256:")
            return content

        def document(name: str) -> Any:
            member = tar.extractfile(name)
            assert member
            return json.load(member)

        assert document("oci-layout") == {"imageLayoutVersion": "1.0.0"}
        index = document("index.json")
        assert index["manifests"][0]["digest"] == made
        manifest = json.loads(blob(made))
        config = json.loads(blob(manifest["config"]["digest"]))
        layer = blob(manifest["layers"][0]["digest"])
        assert manifest["layers"][0]["size"] == len(layer)
        (loadable,) = document("manifest.json")
        assert loadable["RepoTags"] == ["demo/x:1"]
        assert loadable["Layers"] == ["blobs/sha256/" + manifest["layers"][0]["digest"].removeprefix("sha256:")]
    (tmp_path / "layer.gz").write_bytes(layer)
    with tarfile.open(tmp_path / "layer.gz") as tar:
        assert tar.getmember("./bin/sh").mtime == 1000
        assert not any("atime" in member.pax_headers for member in tar)
    assert config["rootfs"]["diff_ids"][0].startswith("sha256:")


def test_a_tar_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="tar ended with code 2"):
        archive.pack(tmp_path / "missing", tmp_path / "layer", 0)


def test_a_layer_lists_its_files_in_order_of_name(tmp_path: Path) -> None:
    names = [hashlib.sha256(bytes([number])).hexdigest() for number in range(50)]
    archive.pack(root(tmp_path / "root", names), tmp_path / "layer", 1000)
    with tarfile.open(tmp_path / "layer") as tar:
        assert tar.getnames()[1:] == sorted(f"./{name}" for name in names)
