"""Storages of a node: told by their markers, in time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from appliance.agent import storages as module
from appliance.agent.docker import mount_sources
from appliance.agent.storages import LONGEST_ID, MARKER, MissingStorageError, Storage, Storages

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / MARKER).write_text("one\n")
    return tmp_path / "shared"


def known(root: Path, expected: str = "one") -> Storages:
    return Storages({"shared": root}, {"shared": expected} if expected else {})


async def reason_of(storages: Storages, folder: Path) -> str:
    try:
        await storages.check([folder])
    except MissingStorageError as error:
        return error.problems[0].reason
    return ""


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if holds():
            return
        await anyio.sleep(0.01)
    raise AssertionError("it does not come to hold")


async def test_what_has_the_marker_is_the_storage_and_nothing_else_is(root: Path) -> None:
    storages = known(root)
    assert await reason_of(storages, root / "volume") == ""
    (root / MARKER).rename(root / "kept")
    assert await reason_of(storages, root / "volume") == "the storage shared is not mounted on this node"
    assert storages.missing == {"shared": "the storage shared is not mounted on this node"}
    assert await reason_of(storages, root.parent / "elsewhere") == "", "which is in no storage"
    (root / "kept").rename(root / MARKER)
    assert await reason_of(storages, root / "volume") == ""
    assert storages.missing == {}


@pytest.mark.parametrize("written", ["two", "", "one" * LONGEST_ID])
async def test_another_id_is_another_storage(root: Path, written: str) -> None:
    (root / MARKER).write_text(written)
    assert await reason_of(known(root), root) != ""


async def test_one_whose_id_nobody_knows_is_not_there(root: Path) -> None:
    (root / MARKER).write_text("")
    assert await reason_of(known(root, ""), root) == "the storage shared is not mounted on this node"
    (root / MARKER).write_text("one")
    assert await reason_of(known(root, ""), root) == "the storage shared is another one than the site's on this node"


async def test_a_marker_is_a_plain_file(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one")
    (root / MARKER).unlink()
    (root / MARKER).symlink_to(tmp_path / "file")
    assert "cannot be read" in await reason_of(known(root), root)
    (root / MARKER).unlink()
    os.mkfifo(root / MARKER)
    assert "is not mounted" in await reason_of(known(root), root)


async def test_a_folder_is_made_within_what_has_the_marker_and_nowhere_else(root: Path) -> None:
    os.close(mount_sources.make(root / "a/b", [root], known(root)))
    assert (root / "a/b").is_dir()
    (root / MARKER).unlink()
    with pytest.raises(MissingStorageError) as caught:
        mount_sources.make(root / "c", [root], known(root))
    assert not (root / "c").exists()
    assert str(root) not in str(caught.value), "people of sessions read it"
    # one that is opened by itself lies in the storage all the same
    with pytest.raises(MissingStorageError):
        mount_sources.make(root / "a", [root / "a"], known(root))


async def test_a_storage_that_hangs_is_told_in_time_and_holds_up_one_thread(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, threads = threading.Event(), list[str]()

    def hang(_: Storage) -> str:
        threads.append(threading.current_thread().name)
        answers.wait(120)
        return ""

    monkeypatch.setattr(Storage, "reason", hang)
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    storages = known(root)
    began = time.monotonic()
    reasons = [await reason_of(storages, root) for _ in range(5)]
    assert time.monotonic() - began < 60
    assert set(reasons) == {"the storage shared does not answer on this node"}
    await until(lambda: len(threads) > 0)
    assert len(threads) == 1
    monkeypatch.setattr(module, "ANSWER_S", 60.0)
    answers.set()
    assert await reason_of(storages, root) == ""


async def test_what_changes_is_told_and_nothing_else(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL_S", 0.01)
    storages, told = known(root), list[dict[str, str]]()
    async with anyio.create_task_group() as group:
        group.start_soon(storages.run, lambda: told.append(dict(storages.missing)))
        await anyio.sleep(0.1)
        assert told == []
        (root / MARKER).rename(root / "kept")
        await until(lambda: len(told) == 1)
        (root / "kept").rename(root / MARKER)
        await until(lambda: len(told) == 2)
        await anyio.sleep(0.1)
        group.cancel_scope.cancel()
    assert [list(missing) for missing in told] == [["shared"], []]
