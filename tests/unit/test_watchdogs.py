"""The rule of units: whatever hangs is ended by systemd."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = sorted(path for path in (ROOT / "roles").rglob("penstock-*.service*") if path.is_file())
OF_OTHERS = {"penstock-mps@.service.j2"}
"""CUDA's multi-process service: who starts and asks it is the agent, which has a watchdog."""


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_unit_has_a_watchdog_or_a_limit(unit: Path) -> None:
    said = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
    if unit.name in OF_OTHERS:
        return
    if said["Type"] == "oneshot":
        assert "TimeoutStartSec" in said, "it may take for ever"
    else:
        assert {"WatchdogSec", "NotifyAccess", "TimeoutAbortSec"} <= said.keys(), "it may hang for ever"
        assert said["Restart"] == "always"


def test_there_are_units() -> None:
    assert len(UNITS) >= 8
