"""KAI-Scheduler's own scenarios: the same outcome, or one of the differences that decision 16 gives a reason for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.api.scheduler.kai import differences, read

PATH = Path(os.environ.get("SCENARIOS", Path(__file__).parents[5] / "shared" / "scenarios")) / "kai.json"
"""They lie beside the project, as other people's work does."""

DIFFERENT = {
    "allocate/allocate_test.go:705": "the older goes first",
    "integration_tests/allocate/allocate_test.go:381": "the older goes first",
    "integration_tests/reclaim/reclaimFractional_test.go:202": "fewer are stopped",
    "integration_tests/reclaim/reclaim_test.go:312": "fewer are stopped",
    "integration_tests/reclaim/reclaim_test.go:1124": "nobody is stopped for a part of a session",
    "integration_tests/reclaim/reclaim_test.go:672": "a guarantee is met",
    "integration_tests/reclaim/reclaim_test.go:2321": "work without a GPU has no guarantee",
    "reclaim/reclaim_test.go:1431": "nothing is left idle",
}
"""The scenarios in which ours decides otherwise, each with its row of the table in decision 16."""

SCENARIOS = read(PATH) if PATH.exists() else {}


@pytest.mark.skipif(not SCENARIOS, reason=f"{PATH} is not there")
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_outcome_or_a_reason(name: str) -> None:
    found = differences(SCENARIOS[name])
    assert bool(found) == (name in DIFFERENT), f"{found}: {DIFFERENT.get(name, 'no reason is given')}"


def test_each_reason_stands_in_the_decision() -> None:
    decisions = Path(__file__).parents[4] / "docs" / "adr"
    (decision,) = decisions.glob("0016-*.md")
    table = decision.read_text(encoding="utf-8")
    assert all(f"| {reason} |" in table for reason in DIFFERENT.values())
