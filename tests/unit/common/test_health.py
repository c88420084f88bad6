"""Tests of damped checks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from common.checks import Check, CheckState
from common.health import MISSING, Damped, DampedChecks, Damping, graded

DAMPING = Damping(worse=2, better=3, flaps=2, window_s=100)


def states(found: Iterable[str], damped: Damped | None = None, every_s: float = 10) -> list[str]:
    """The states that count, as looks find them one after the other."""
    damped = damped or Damped(DAMPING)
    return [
        damped.see(Check("disk", "disk", CheckState(each), each), every_s * index).state
        for index, each in enumerate(found)
    ]


def test_the_first_look_counts_at_once() -> None:
    assert states(["fail"]) == ["fail"]


def test_a_worse_state_counts_when_it_holds() -> None:
    assert states(["ok", "fail", "ok", "fail", "fail"]) == ["ok", "ok", "ok", "ok", "fail"]


def test_a_better_state_has_to_hold_for_longer() -> None:
    assert states(["fail", "ok", "ok", "fail", "ok", "ok", "ok"]) == [*["fail"] * 6, "ok"]


def test_looks_in_a_row_that_find_it_worse_count_as_the_mildest_of_them() -> None:
    assert states(["ok", "warn", "fail", "fail"]) == ["ok", "ok", "warn", "fail"]
    assert states(["ok", "unknown", "warn"])[-1] == "unknown"
    assert states(["ok", *["fail", "warn"] * 20])[2:] == ["warn"] * 39


def test_a_failure_counts_though_every_second_look_cannot_be_made() -> None:
    assert states(["ok", *["fail", "unknown"] * 20])[3:] == ["fail"] * 38
    assert states(["ok", "unknown", "unknown", "fail", "fail"]) == ["ok", "ok", "unknown", "unknown", "fail"]


def test_looks_in_a_row_that_find_it_better_count_as_the_worst_of_them() -> None:
    assert states(["fail", "ok", "warn", "ok", "ok", "ok"]) == ["fail", "fail", "fail", "warn", "warn", "ok"]
    assert states(["fail", *["warn", "ok"] * 20])[3:] == ["warn"] * 38


def test_a_look_that_cannot_be_made_makes_nothing_better() -> None:
    assert states(["fail", *["unknown"] * 20]) == ["fail"] * 21
    assert states(["fail", "ok", "unknown", "ok", "unknown", "ok"])[-2:] == ["fail", "ok"]
    assert states(["ok", "unknown", "unknown"])[-1] == "unknown"


def test_one_that_flaps_has_to_be_well_for_the_whole_window() -> None:
    once = ["ok", "fail", "fail", "ok", "ok", "ok", "fail", "fail"]
    found = states([*once, *["ok"] * 12])
    assert found[:8] == ["ok", "ok", "fail", "fail", "fail", "ok", "ok", "fail"]
    # two changes in the last 100 s: the third good look is not enough, and the one after 100 s is
    assert found.index("ok", 8) > 10
    assert found[-1] == "ok"


def test_one_that_goes_on_to_flap_stays_as_it_was() -> None:
    # 70 s well, 130 s failing: that it changed is not over because it is held
    found = states(["ok" if index % 20 < 7 else "fail" for index in range(720)], Damped(Damping()))
    assert found.index("fail") < 10
    assert set(found[60:]) == {"fail"}


def test_one_that_failed_for_long_flaps_no_more() -> None:
    once = ["ok", "fail", "fail", "ok", "ok", "ok", "fail", "fail"]
    assert states([*once, *["fail"] * 12, "ok", "ok", "ok"])[-2:] == ["fail", "ok"]


def test_evidence_and_occurrence_follow_each_look() -> None:
    damped = Damped(DAMPING)
    for index, since in enumerate(("2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z")):
        xid = damped.see(Check("gpu.xid", "gpu", CheckState.FAIL, f"Xid {index}", since=since), index)
    assert (xid.evidence, xid.since) == ("Xid 1", "2026-01-01T01:30:00Z")
    xid = damped.see(Check("gpu.xid", "gpu", CheckState.UNKNOWN, "NVML hangs"), 2)
    assert (xid.state, xid.evidence, xid.since) == ("fail", "NVML hangs", "2026-01-01T01:30:00Z")


def test_what_a_look_finds_no_more_is_forgotten_only_after_a_while() -> None:
    checks = DampedChecks[str](DAMPING)
    checks.see({"a": Check("a", "a", CheckState.FAIL, "broken"), "b": Check("b", "b", CheckState.OK, "")}, 0)
    for moment in (10, 20, 30, 100):
        checks.see({}, moment)
    assert {key: (check.state, check.evidence) for key, check in checks.counts.items()} == {
        "a": ("fail", MISSING),
        "b": ("unknown", MISSING),
    }
    checks.see({"a": Check("a", "a", CheckState.FAIL, "broken")}, 110)
    assert checks.counts.keys() == {"a"}
    assert checks.counts["a"].evidence == "broken"
    # two looks that are far apart are too few
    for moment in (500, 900):
        checks.see({}, moment)
    assert checks.counts.keys() == {"a"}
    checks.see({}, 901)
    assert not checks.counts


@pytest.mark.parametrize(("value", "state"), [(85, "ok"), (86, "warn"), (95, "warn"), (96, "fail")])
def test_bounds_are_what_may_be(value: float, state: str) -> None:
    assert graded(value, 85, 95) == state
