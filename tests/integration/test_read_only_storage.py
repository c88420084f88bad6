"""Storages that can be read and not written, with a real mount: sessions that make folders there would fail."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.agent.storages import MARKER, MissingStorageError, Storage
from tests.role_modules import role_module

evidence = role_module("evidence/library/node_evidence.py")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A storage that is mounted, with its marker."""
    root = tmp_path / "shared"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", root], check=True)
    subprocess.run(["mount", "--bind", root, root], check=True)
    (root / MARKER).write_text("one\n")
    yield root
    for _ in range(2):
        subprocess.run(["umount", root], check=True)


def run(*command: str) -> tuple[int, str]:
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.returncode, (found.stdout + found.stderr).strip()


def test_a_storage_that_became_read_only_is_missing_until_it_can_be_written(root: Path) -> None:
    shared = Storage("shared", root, "one")
    assert shared.reason() == ""
    assert evidence.storage(root, "one", run)["ok"]
    before = (root / MARKER).stat()
    subprocess.run(["mount", "-o", "remount,ro,bind", root], check=True)
    with pytest.raises(MissingStorageError, match="the storage shared is read-only on this node"):
        shared.open()
    assert evidence.storage(root, "one", run) == {"ok": False, "detail": f"{root} is read-only"}
    subprocess.run(["mount", "-o", "remount,rw,bind", root], check=True)
    assert shared.reason() == ""
    assert evidence.storage(root, "one", run)["ok"]
    after = (root / MARKER).stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size), "nothing is written"
