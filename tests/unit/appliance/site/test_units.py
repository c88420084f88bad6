"""Units: whether one is under way, as systemd says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.site import units


@pytest.mark.parametrize(
    ("answers", "runs"),
    [
        (["active"], True),
        (["activating"], True),
        (["inactive", "inactive"], False),
        (["failed", "inactive"], False),
        (["inactive", "active"], True),
        ([""], True),
        (["inactive", ""], True),
    ],
)
def test_a_unit_has_ended_when_systemd_says_so_twice(
    answers: list[str], runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy manager sometimes answers nothing, or wrongly."""
    for number, answer in enumerate(answers):
        (tmp_path / f"answer-{number}").write_text(f"{answer}\n")
    program = tmp_path / "systemctl"
    program.write_text(
        f'#!/bin/sh\ncd {tmp_path}\nnext=$(ls answer-* | head -n 1)\ncat "$next"\nrm "$next"\ntest ! -e x\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(units, "AGAIN_S", 0.0)
    assert units.runs("penstock-repair-x") is runs
    assert not list(tmp_path.glob("answer-*"))
