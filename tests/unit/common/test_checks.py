"""Tests of checks."""

from common.checks import Check, CheckState


def test_a_check_that_fails_names_hint_and_repair() -> None:
    """They say what to do."""
    check = Check.of("agent", "its agent reports", ok=False, evidence="silent", hint="look", subject="w1", repair="5-E")
    assert check == Check("agent", "its agent reports", CheckState.FAIL, "silent", "look", "w1", "5-E")
    assert not check.ok


def test_a_check_that_holds_needs_neither() -> None:
    """There is nothing to do."""
    check = Check.of("agent", "its agent reports", ok=True, evidence="2 s ago", hint="look", repair="5-E")
    assert (check.hint, check.repair, check.ok) == ("", "", True)


def test_what_could_not_be_looked_at_is_not_good() -> None:
    """A warning is near enough; not knowing is not."""
    states = {state: Check("agent", "its agent reports", state, "").ok for state in CheckState}
    assert states == {CheckState.OK: True, CheckState.WARN: True, CheckState.FAIL: False, CheckState.UNKNOWN: False}
