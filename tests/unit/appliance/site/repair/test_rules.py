"""Rules of repairs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from appliance.site.repair import rules
from common.repairs import REBOOT, REPAIRS

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def ago(*minutes: float) -> list[datetime]:
    return [NOW - timedelta(minutes=each) for each in minutes]


@pytest.mark.parametrize("tries", [[], ago(1, 2), ago(1, 2, 10), ago(11, 12, 13, 14)])
def test_a_repair_is_tried_three_times_in_ten_minutes(tries: list[datetime]) -> None:
    assert rules.of_tries(REPAIRS["5-C"], "m1", tries, NOW) is None


def test_a_fourth_try_is_refused_and_says_when_it_may_be() -> None:
    problem = rules.of_tries(REPAIRS["5-C"], "m1", ago(1, 2, 9, 30), NOW)
    assert problem is not None
    assert (problem.where, problem.reason) == ("m1", "5-C was tried 3 times in 10 minutes")
    assert "12:01:00 UTC" in problem.hint


@pytest.mark.parametrize("back", [timedelta(hours=1), timedelta(days=3)])
def test_tries_that_a_clock_put_back_brings_into_the_future_do_not_count(back: timedelta) -> None:
    assert rules.of_tries(REPAIRS["5-C"], "m1", ago(1, 2, 3), NOW - back) is None


@pytest.mark.parametrize(
    ("unhealthy", "nodes", "percentage", "refused"),
    [
        (0, 4, 20, False),
        (1, 4, 20, False),  # one alone never forbids it
        (2, 4, 20, True),
        (2, 10, 20, False),
        (3, 10, 20, True),
        (1, 4, 0, True),
        (4, 4, 100, False),
    ],
)
def test_nothing_is_repaired_while_too_many_nodes_are_unhealthy(
    unhealthy: int, nodes: int, percentage: int, refused: bool
) -> None:
    names = [f"w{number}" for number in range(unhealthy)]
    problem = rules.of_share(names, nodes, percentage)
    assert (problem is not None) == refused
    if problem:
        assert all(name in problem.reason for name in names)


def test_a_ladder_without_a_reboot_has_no_forbidden_rung() -> None:
    assert rules.forbidden(REPAIRS["5-E"], reboot=False, sessions=["a of b"], agreed=False) == {}


def test_a_reboot_needs_the_word_of_the_site() -> None:
    found = rules.forbidden(REPAIRS["5-G"], reboot=False, sessions=[], agreed=True)
    assert "the site allows no reboot" in found[REBOOT]


def test_a_reboot_names_the_sessions_that_it_would_end() -> None:
    found = rules.forbidden(REPAIRS["5-G"], reboot=True, sessions=["first of ann", "second of bob"], agreed=False)
    assert "first of ann, second of bob" in found[REBOOT]


def test_a_reboot_is_not_climbed_where_nobody_knows_what_it_would_end() -> None:
    found = rules.forbidden(REPAIRS["5-G"], reboot=True, sessions=None, agreed=False)
    assert "Docker does not say which sessions" in found["reboot"]
    assert rules.forbidden(REPAIRS["5-G"], reboot=True, sessions=None, agreed=True) == {}


@pytest.mark.parametrize(("sessions", "agreed"), [([], False), (["first of ann"], True)])
def test_a_reboot_that_ends_nothing_or_was_agreed_to_is_allowed(sessions: list[str], agreed: bool) -> None:
    assert rules.forbidden(REPAIRS["5-G"], reboot=True, sessions=sessions, agreed=agreed) == {}
