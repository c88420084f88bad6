from __future__ import annotations

from pathlib import Path

import pytest

from reservoir.download import indexes


def test_the_settings_of_pip_are_pips_own_wherever_somebody_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    assert indexes.machine().index == "https://index.example/simple"
