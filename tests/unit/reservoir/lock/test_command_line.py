"""Where `penstock reservoir lock` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from reservoir.lock.file import matches
from tests.unit.reservoir.test_command_line import call


def test_manifests_of_one_folder_have_locks_of_their_own(
    monkeypatch: pytest.MonkeyPatch, manifest: Path, locked: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    before = locked.read_bytes()
    drivers = tmp_path / "drivers.yml"
    drivers.write_text(manifest.read_text().replace("name: small", "name: drivers"))
    assert call(monkeypatch, "lock", drivers) == 0
    assert locked.read_bytes() == before
    assert matches(tmp_path / "drivers.lock", drivers)
    assert call(monkeypatch, "lock", manifest, "--if-changed") == 0
    assert call(monkeypatch, "lock", drivers, "--lock", tmp_path / "named.lock") == 0
    assert (tmp_path / "named.lock").read_bytes() == (tmp_path / "drivers.lock").read_bytes()
