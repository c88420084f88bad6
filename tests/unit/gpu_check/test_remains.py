"""Processes that a check leaves behind are found, named and ended."""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path
from typing import Any, cast

import pytest

import tests.gpu.__main__ as kit
from tests.gpu import remains
from tests.gpu.card import Card
from tests.gpu.outcomes import Figure, State


def test_a_process_that_has_left_its_parent_and_its_session_is_found_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remains, "GRACE_S", 0.2)
    environment = {"PATH": os.environ["PATH"], remains.MARK: str(tmp_path)}
    subprocess.run(["sh", "-c", "setsid sleep 60 &"], env=environment, check=True, timeout=10)
    until = time.monotonic() + 10
    while "sleep" not in remains.remains(tmp_path).values() and time.monotonic() < until:
        time.sleep(0.01)
    assert remains.remains(tmp_path / "other") == {}
    assert remains.clear(tmp_path) == ["sleep"]
    while remains.remains(tmp_path) and time.monotonic() < until:
        time.sleep(0.01)
    assert remains.clear(tmp_path) == []


def test_a_process_that_changes_its_program_again_and_again_is_found_at_each_look(tmp_path: Path) -> None:
    program = tmp_path / "again"
    program.write_text('#!/bin/sh\nexec "$0"\n')
    program.chmod(0o700)
    environment = {"PATH": os.environ["PATH"], remains.MARK: str(tmp_path)}
    with subprocess.Popen([program], env=environment) as process:
        try:
            assert [list(remains.remains(tmp_path)) for _ in range(200)] == [[process.pid]] * 200
        finally:
            process.kill()


class _Card:
    """A card of which nothing is needed."""

    is_cut = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def end_programs(self) -> None:
        pass


def test_a_check_that_leaves_a_process_behind_is_outside_whatever_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remains, "GRACE_S", 0.2)

    def leaves(card: Any) -> list[Figure]:
        environment = {"PATH": os.environ["PATH"], remains.MARK: str(card.folder)}
        subprocess.run(["sh", "-c", "setsid sleep 60 &"], env=environment, check=True, timeout=10)
        return [Figure("got", 1, wanted=1)]

    checks = {"kind leaves": leaves, "kind leaves nothing": lambda card: [Figure("got", 1, wanted=1)]}
    monkeypatch.setattr(kit, "CHECKS", checks)
    options = argparse.Namespace(minutes=1, only="")
    first, second = kit._outcomes(cast("Card", _Card(tmp_path)), options)
    assert (first.state, first.error) == (State.OUTSIDE, "it leaves processes behind: sleep")
    assert second.state is State.WITHIN
