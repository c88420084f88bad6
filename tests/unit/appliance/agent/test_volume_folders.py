"""Folders of volumes on a node: which there are, how large they are, and how they go."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest

from appliance.agent import volume_folders
from appliance.agent.storages import MARKER, NO_STORAGES, MissingStorageError, Storages
from appliance.agent.volume_folders import VolumeFolders, measure
from common.errors import ForbiddenError, InputError, ProcessError
from common.storage_protocol import FolderRemoval

pytestmark = pytest.mark.anyio

NO_ID = "00000000-6b0c-4f8e-9a51-6f0b5e1d2c3a"
ID = "3f2b8a52-6b0c-4f8e-9a51-6f0b5e1d2c3a"


async def removed(folders: VolumeFolders, folder: Path) -> str:
    """Ask until a folder is gone; return what failed last."""
    error = ""
    until = time.monotonic() + 10
    while (answer := await folders.remove(folder)).there:
        error = answer.error or error
        assert time.monotonic() < until
        if error:
            return error
        await anyio.sleep(0.01)
    return error


def deep(folder: Path, levels: int) -> None:
    """Make folders within each other, deeper than any path may be long."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("x" * 10, dir_fd=descriptor)
        below = os.open("x" * 10, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)


async def test_ids_and_folders_of_projects_are_listed_and_nothing_else(tmp_path: Path) -> None:
    for path in (ID, "team-a/data", "team-a/models", "Upper/x", "team-b/.hidden"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "team-a" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "team-a")
    state = await VolumeFolders([tmp_path], NO_STORAGES).look(tmp_path)
    assert [folder.folder for folder in state.folders] == [ID, "team-a/data", "team-a/models"]
    assert not state.mounted, "nobody has said which storage that is"
    assert not (await VolumeFolders([tmp_path], NO_STORAGES).remove(tmp_path / NO_ID)).mounted


async def test_of_a_storage_is_told_what_lies_beside_its_marker(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("one\n")
    (tmp_path / ID).mkdir()
    folders = VolumeFolders([tmp_path], Storages({"shared": tmp_path}, {"shared": "one"}))
    state = await folders.look(tmp_path)
    assert state.mounted
    assert [folder.folder for folder in state.folders] == [ID]
    assert (await folders.remove(tmp_path / NO_ID)) == FolderRemoval(there=False, mounted=True)
    assert await removed(folders, tmp_path / ID) == ""
    assert not (tmp_path / ID).exists()


@pytest.mark.parametrize("marker", ["", "two\n"])
async def test_a_storage_that_is_not_there_is_not_empty(tmp_path: Path, marker: str) -> None:
    (tmp_path / ID).mkdir()
    if marker:
        (tmp_path / MARKER).write_text(marker)
    folders = VolumeFolders([tmp_path], Storages({"shared": tmp_path}, {"shared": "one"}))
    for asked in (folders.look(tmp_path), folders.remove(tmp_path / NO_ID), folders.remove(tmp_path / ID)):
        with pytest.raises(MissingStorageError, match="the storage shared is"):
            await asked
    assert (tmp_path / ID).exists()


async def test_sizes_count_every_file_once(tmp_path: Path) -> None:
    folder = tmp_path / ID / "deep" / "er"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(os.urandom(3 << 20))
    os.link(folder / "file", tmp_path / ID / "again")
    (tmp_path / ID / "link").symlink_to("/usr")
    (state,) = (await VolumeFolders([tmp_path], NO_STORAGES).look(tmp_path)).folders
    assert (state.used_mib, state.limit_mib) == (3, None)
    assert measure(tmp_path / ID, os.statvfs(tmp_path), time.monotonic() - 1) == (None, None), "there is no time left"


async def test_a_storage_that_limits_folders_tells_their_sizes(tmp_path: Path) -> None:
    other = next((path for path in (Path("/dev/shm"), Path("/proc")) if path.is_dir()), None)
    assert other is not None
    used, limit = measure(other, os.statvfs("/"), time.monotonic() + 1)
    assert limit == os.statvfs(other).f_blocks * os.statvfs(other).f_frsize >> 20
    assert used is not None
    assert used <= limit


async def test_a_folder_goes_with_what_is_in_it_and_no_link_is_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (root / ID).mkdir(parents=True)
    deep(root / ID, 1500)
    (root / ID / "link").symlink_to(outside)
    folders = VolumeFolders([root], NO_STORAGES)
    assert await removed(folders, root / ID) == ""
    assert not (root / ID).exists()
    assert (outside / "file").exists()
    assert not (await folders.remove(root / ID)).there, "it may be asked for again"


async def test_what_fails_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ID).mkdir()
    folders = VolumeFolders([tmp_path], NO_STORAGES)

    def fail(below: Path, _root: Path) -> None:
        raise ProcessError(f"rm ended with code 1: {below}: Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(volume_folders, "_remove", fail)
        assert "Operation not permitted" in await removed(folders, tmp_path / ID)
    until = time.monotonic() + 10
    while (await folders.remove(tmp_path / ID)).there:
        assert time.monotonic() < until
        await anyio.sleep(0.01)
    assert not (tmp_path / ID).exists()


@pytest.mark.parametrize("path", [".", "a/b/c", "../other", "Upper", "link/data"])
async def test_nothing_but_the_folder_of_a_volume_is_removed(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    (root / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "other" / "data").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "other")
    with pytest.raises((InputError, ForbiddenError)):
        await VolumeFolders([root], NO_STORAGES).remove(Path(f"{root}/{path}"))
    assert (tmp_path / "other" / "data").exists()


async def test_what_is_no_storage_of_the_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ForbiddenError, match="no storage"):
        await VolumeFolders([], NO_STORAGES).look(tmp_path)
    with pytest.raises(ForbiddenError, match="no storage"):
        await VolumeFolders([], NO_STORAGES).remove(tmp_path / ID)
