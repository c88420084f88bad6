"""A layer laid over the one below gives the root that it was made of; the same change gives the same bits."""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from reservoir.artifacts.image.layer import Snapshot, changes, pack, snapshot, unpack
from reservoir.artifacts.image.oci import Layer

EPOCH = 1000


def root(folder: Path, names: list[str]) -> Path:
    """Make the same root file system with its files written in another order."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(0o755)
    return folder


def layered(base: Path, before: Snapshot, work: Path) -> Path:
    """Pack what changed in `base` since `before` and return the file."""
    path = work / "upper"
    pack(base, *changes(before, snapshot(base, EPOCH)), path, EPOCH)
    return path


def names(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_the_same_root_gives_the_same_bits(tmp_path: Path) -> None:
    made: list[Layer] = []
    for order in (["a/b", "c"], ["c", "a/b"], ["a/b", "d"]):
        place = root(tmp_path / str(len(made)), order)
        os.utime(place / order[0], (5, 2000 + len(made)))
        made.append(pack(place, *changes({}, snapshot(place, EPOCH)), tmp_path / f"layer{len(made)}", EPOCH))
    assert made[0] == made[1]
    assert made[2] != made[0]
    with tarfile.open(tmp_path / "layer0") as tar:
        assert tar.getmember("./c").mtime == EPOCH
        assert not any("atime" in member.pax_headers for member in tar)
    assert made[0].sha256 == hashlib.sha256((tmp_path / "layer0").read_bytes()).hexdigest()


def test_a_layer_lists_its_files_in_order_of_name(tmp_path: Path) -> None:
    wanted = [hashlib.sha256(bytes([number])).hexdigest() for number in range(50)]
    place = root(tmp_path / "root", wanted)
    assert names(layered(place, {}, tmp_path)) == sorted(f"./{name}" for name in wanted)


def test_layers_over_each_other_give_the_root_again(tmp_path: Path) -> None:
    base = root(tmp_path / "base", ["keep", "old/one", "old/two", "folder/deep/file", "mode", "text"])
    (base / "link").symlink_to("keep")
    (tmp_path / "lower").mkdir()
    lower = layered(base, {}, tmp_path / "lower")
    before = snapshot(base, EPOCH)

    (base / "old/one").unlink()
    for path in ("folder/deep/file", "link"):
        (base / path).unlink()
    (base / "folder/deep").rmdir()
    (base / "folder/deep").symlink_to("../old")
    (base / "link").symlink_to("text")
    (base / "mode").chmod(0o600)
    (base / "text").write_text("grown")
    root(base, ["new/folder/file"])
    os.link(base / "keep", base / "second name")
    (base / "empty").mkdir()
    upper = layered(base, before, tmp_path)

    assert "./old/.wh.one" in names(upper)
    assert "./keep" not in names(upper), "what did not change stays in the layer below"
    again = tmp_path / "again"
    unpack(lower, again)
    unpack(upper, again)
    assert snapshot(again, EPOCH) == snapshot(base, EPOCH)
    assert not list(base.rglob(".wh.*")), "the root keeps no marker"


def test_a_folder_that_is_gone_needs_one_marker(tmp_path: Path) -> None:
    base = root(tmp_path / "base", ["keep", "gone/a/b", "gone/c"])
    before = snapshot(base, EPOCH)
    for path in ("gone/a/b", "gone/c"):
        (base / path).unlink()
    (base / "gone/a").rmdir()
    (base / "gone").rmdir()
    assert names(layered(base, before, tmp_path)) == ["./.wh.gone"]


def test_a_touched_file_is_no_change(tmp_path: Path) -> None:
    base = root(tmp_path / "base", ["file"])
    before = snapshot(base, EPOCH)
    os.utime(base / "file", (9000, 9000))
    assert changes(before, snapshot(base, EPOCH)) == ([], [])


def test_a_tar_that_fails_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with pytest.raises(Exception, match="tar ended with code 2"):
        pack(tmp_path / "root", [Path("missing")], [], tmp_path / "layer", 0)
