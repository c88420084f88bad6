"""Where unit tests write: in memory, but where that has little room, runs no programs, or would be filled."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit import conftest

BLOCK = 4096


class Config:
    """As much of the configuration of pytest as is asked for."""

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def getini(self, name: str) -> str:
        return {"tmp_path_retention_policy": self.policy}[name]


def chosen(config: Any, monkeypatch: pytest.MonkeyPatch, free: int = conftest.FREE, flags: int = 0) -> str | None:
    """The folder that a run takes with so many bytes free in memory."""
    found = SimpleNamespace(f_bavail=free // BLOCK, f_frsize=BLOCK, f_flag=flags)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    monkeypatch.delenv(conftest.FOLDER, raising=False)
    conftest.pytest_configure(config)
    return os.environ.get(conftest.FOLDER)


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    # so that the variable is afterwards what it was
    monkeypatch.setenv(conftest.FOLDER, "")
    monkeypatch.setattr(conftest, "MEMORY", tmp_path)
    return str(tmp_path)


def test_a_run_that_keeps_what_failed_alone_writes_to_memory(monkeypatch: pytest.MonkeyPatch, memory: str) -> None:
    assert chosen(Config("failed"), monkeypatch) == memory


def test_a_run_that_keeps_all_writes_to_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(Config("all"), monkeypatch) is None


@pytest.mark.parametrize(
    ("free", "flags"), [(conftest.FREE - BLOCK, 0), (conftest.FREE, os.ST_NOEXEC), (conftest.FREE, os.ST_RDONLY)]
)
def test_memory_without_room_or_programs_is_not_taken(monkeypatch: pytest.MonkeyPatch, free: int, flags: int) -> None:
    assert chosen(Config("failed"), monkeypatch, free, flags) is None


def test_a_machine_without_such_a_folder_writes_to_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(conftest, "MEMORY", tmp_path / "nowhere")
    assert chosen(Config("failed"), monkeypatch) is None


def test_where_somebody_said_where_to_write_that_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(conftest.FOLDER, "/elsewhere")
    conftest.pytest_configure(Config("failed"))  # type: ignore[arg-type]
    assert os.environ[conftest.FOLDER] == "/elsewhere"
