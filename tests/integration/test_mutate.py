"""Tests of a mutated tree, run as `tools.mutate` runs them: what fails is named, and what hangs is ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutate import failing

TEST = """
from api.half import half


def test_half():
    assert half(4) == 2
"""


@pytest.mark.parametrize(
    ("body", "limit_s", "wanted"),
    [
        ("return x // 2", 120.0, ""),
        ("return x // 3", 120.0, "tests/api/test_half.py::test_half"),
        ("return y", 120.0, "tests/api/test_half.py::test_half"),
        ("time.sleep(600)", 5.0, "time limit of 5 s"),
    ],
)
def test_what_fails_is_named_and_what_hangs_is_ended(tmp_path: Path, body: str, limit_s: float, wanted: str) -> None:
    for name in ("api/__init__.py", "tests/__init__.py", "tests/api/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-p no:schemathesis'\n")
    (tmp_path / "api/half.py").write_text(f"import time\ndef half(x):\n    {body}\n")
    test = tmp_path / "tests/api/test_half.py"
    test.write_text(TEST)
    assert failing(tmp_path, [test], limit_s) == wanted
