from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

import pytest

from common.errors import UnavailableError
from reservoir.download.cache import Cache, space_on


def test_a_second_build_says_who_holds_the_cache_and_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/bin/penstock", "reservoir", "build", "m.yml\x1b[2J"])
    said: list[str] = []
    told = threading.Event()

    def progress(step: str, done: int = 0, total: int = 0) -> None:
        said.append(step)
        told.set()

    def second() -> None:
        with Cache(tmp_path).alone(progress):
            said.append("mine")

    waiting = threading.Thread(target=second)
    with Cache(tmp_path).alone(progress):
        assert not said
        waiting.start()
        assert told.wait(20)
    waiting.join(20)
    first, *rest = said
    assert rest == ["mine"]
    words = f"wait for process {os.getpid()} (penstock reservoir build m.yml?[2J), which has held {tmp_path} since "
    assert first.startswith(words)


def test_who_held_the_cache_before_is_not_told(tmp_path: Path) -> None:
    with Cache(tmp_path).alone():
        pass
    assert (tmp_path / ".lock").read_bytes() == b""


def test_a_full_disk_keeps_nothing_unfinished(tmp_path: Path) -> None:
    unfinished = tmp_path / ".out.partial"
    unfinished.mkdir()
    (unfinished / "half").touch()
    with pytest.raises(UnavailableError, match="no space left on the disk"), space_on(tmp_path, unfinished):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not unfinished.exists()
