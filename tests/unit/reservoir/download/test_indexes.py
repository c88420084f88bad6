"""What pip's own settings say of package indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from reservoir.download import indexes


def test_nothing_of_the_working_directory_reads_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pip", "argparse"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(0)")
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nindex-url = http://index.example/simple/\n")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.chdir(tmp_path)
    assert indexes.machine().index == "http://index.example/simple/"
