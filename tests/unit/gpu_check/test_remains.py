"""Processes that a check leaves behind are found, named and ended."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.gpu import remains


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
