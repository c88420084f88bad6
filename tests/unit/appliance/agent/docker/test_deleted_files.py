"""Deleted files that programs still have, on processes of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from appliance.agent.docker import deleted_files
from appliance.gpu import cgroups

ENGINE_ID = "c" * 64
OPEN = "file = open(path, 'wb'); file.truncate(); file.write(bytes(3 << 20)); file.flush()"
MAPPED = f"import mmap; {OPEN}; file = open(path, 'rb+'); held = mmap.mmap(file.fileno(), 0); file.close()"
DELETED = "os.unlink(path)"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Start programs that do something to a file, and stay; return their ids."""
    with ExitStack() as stack:

        def start(does: str) -> int:
            script = f"import os, sys; path = sys.argv[1]; {does}; print('ready', flush=True); sys.stdin.read()"
            started = stack.enter_context(
                subprocess.Popen(
                    (sys.executable, "-c", script, str(tmp_path / "file")),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            stack.callback(started.kill)
            assert started.stdout is not None
            assert started.stdout.readline() == b"ready\n"
            return started.pid

        yield start


@pytest.mark.parametrize(
    ("does", "mib"),
    [
        (f"{OPEN}; {DELETED}", 3),
        (f"{OPEN}; {DELETED}; again = os.dup(file.fileno())", 3),
        (f"{MAPPED}; {DELETED}", 3),
        (OPEN, 0),
        (f"{OPEN}; os.link(path, path + '.other'); {DELETED}", 0),
    ],
    ids=["open", "open twice", "mapped", "not deleted", "under another name"],
)
def test_what_lies_in_no_folder_counts_once(
    program: Callable[[str], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    does: str,
    mib: int,
) -> None:
    pid = program(does)
    monkeypatch.setattr(cgroups, "container_of", lambda each, _: ENGINE_ID if each == pid else None)
    point = _mount_point(tmp_path)
    assert deleted_files.size_mib(ENGINE_ID, pid, {point}, tmp_path) == mib


def test_what_lies_elsewhere_does_not_count(
    program: Callable[[str], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = program(f"{OPEN}; {DELETED}")
    monkeypatch.setattr(cgroups, "container_of", lambda each, _: ENGINE_ID if each == pid else None)
    assert deleted_files.size_mib(ENGINE_ID, pid, {"/nowhere"}, tmp_path) == 0


def test_who_has_ended_holds_nothing(tmp_path: Path) -> None:
    ended = subprocess.Popen((str(shutil.which("true")),))
    ended.wait()
    assert deleted_files.size_mib(ENGINE_ID, ended.pid, {"/"}, tmp_path) == 0


def _mount_point(folder: Path) -> str:
    return next(str(each) for each in (folder, *folder.parents) if os.path.ismount(each))
