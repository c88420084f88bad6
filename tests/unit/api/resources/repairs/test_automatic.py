"""Rules of automatic repairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.resources.repairs.automatic import Failing, Limits, Nodes, Past, choose, gave_up
from common.repairs import REPAIR_OF, REPAIRS, TRIES, RunState

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
TWENTY = Limits(20)


def failing(node: str | None = "w1", minutes: float = 1, check: str = "engine") -> Failing:
    return Failing(check, REPAIR_OF[check], NOW - timedelta(minutes=minutes), node)


def past(
    *minutes: float, node: str | None = "w1", repair: str = "5-D", state: RunState = RunState.STOPPED
) -> list[Past]:
    return [Past(repair, node, state, NOW - timedelta(minutes=each)) for each in minutes]


def nodes(*unhealthy: str, count: int = 10, closed: Sequence[str] = ()) -> Nodes:
    return Nodes(count, frozenset(unhealthy), frozenset(closed))


def test_what_a_check_names_is_a_repair() -> None:
    assert set(REPAIR_OF.values()) <= set(REPAIRS)


def test_what_has_failed_for_longest_comes_first() -> None:
    found = choose([failing("w1", 1), failing("w2", 3), failing(None, 2, "edge")], [], nodes("w1", "w2"), TWENTY, NOW)
    assert found == failing("w2", 3)


@pytest.mark.parametrize("state", [RunState.ORDERED, RunState.RUNNING])
def test_one_runs_at_a_time_whatever_it_is(state: RunState) -> None:
    runs = past(30, node="w9", repair="5-A", state=state)
    assert choose([failing()], runs, nodes("w1"), TWENTY, NOW) is None


def test_a_repair_that_does_not_help_is_ordered_three_times_in_ten_minutes() -> None:
    assert choose([failing()], past(1, 2, 11), nodes("w1"), TWENTY, NOW) == failing()
    assert choose([failing()], past(1, 2, 9), nodes("w1"), TWENTY, NOW) is None
    assert choose([failing()], past(1, 2, 9, node="w2"), nodes("w1"), TWENTY, NOW) == failing(), "of one node"
    assert choose([failing()], past(1, 2, 9, repair="5-E"), nodes("w1"), TWENTY, NOW) == failing(), "of one repair"


def test_one_that_was_run_for_all_was_a_try_on_each_node() -> None:
    assert choose([failing()], past(1, 2, 9, node=None), nodes("w1"), TWENTY, NOW) is None


def test_others_have_their_turn_where_one_is_tried_no_more() -> None:
    assert choose([failing("w1", 9), failing("w2", 1)], past(1, 2, 3), nodes("w1", "w2"), TWENTY, NOW) == failing(
        "w2", 1
    )


def test_a_clock_that_was_put_back_forbids_no_repair_for_days() -> None:
    assert choose([failing()], past(-2000, -2001, -2002), nodes("w1"), TWENTY, NOW) == failing()


def test_nothing_is_ordered_while_too_many_nodes_are_unhealthy() -> None:
    three = nodes("w1", "w2", "w3")
    assert choose([failing()], [], three, TWENTY, NOW) is None
    assert choose([failing()], [], three, Limits(30), NOW) == failing()
    assert choose([failing()], [], nodes("w1", count=2), TWENTY, NOW) == failing(), "one alone is never too many"
    assert choose([failing()], [], nodes("w1", count=2), Limits(0), NOW) is None
    images = failing(None, 1, "registry")
    assert choose([images], [], three, TWENTY, NOW) == images, "images may be missing everywhere for one cause"


def test_where_an_administrator_is_at_work_nothing_is_repaired() -> None:
    assert choose([failing()], [], nodes("w1", closed=["w1"]), TWENTY, NOW) is None


def ordered(*minutes: float, finished: float | None = None, state: RunState = RunState.STOPPED) -> list[Past]:
    at = None if finished is None else NOW - timedelta(minutes=finished)
    return [replace(run, by="check:engine", finished_at=at) for run in past(*minutes, state=state)]


def test_after_three_that_did_not_help_none_is_ordered_and_that_is_told() -> None:
    runs = ordered(300, 200, 100)
    assert choose([failing()], runs, nodes("w1"), TWENTY, NOW) is None
    assert gave_up(failing(), runs, TWENTY, NOW) == runs
    assert choose([failing()], runs[1:], nodes("w1"), TWENTY, NOW) == failing()
    assert not gave_up(failing(), runs[1:], TWENTY, NOW)
    since = replace(failing(), well_at=NOW - timedelta(minutes=250))
    assert choose([since], runs, nodes("w1"), TWENTY, NOW) == since, "it was well after the first one"
    assert not gave_up(since, runs, TWENTY, NOW)


def test_the_last_one_is_waited_for() -> None:
    runs = ordered(30, 20) + ordered(1, state=RunState.RUNNING)
    assert not gave_up(failing(), runs, TWENTY, NOW)
    limits = Limits(20, timedelta(minutes=1))
    assert not gave_up(failing(), ordered(30, 20, 2, finished=0.5), limits, NOW)
    assert gave_up(failing(), ordered(30, 20, 2, finished=1.5), limits, NOW)


def test_one_that_has_just_ended_has_time_to_show() -> None:
    limits = Limits(20, timedelta(minutes=1))
    assert choose([failing()], ordered(2, finished=0.5), nodes("w1"), limits, NOW) is None
    assert choose([failing()], ordered(2, finished=1.5), nodes("w1"), limits, NOW) == failing()


@given(
    st.lists(
        st.builds(failing, st.sampled_from(["w1", "w2", None]), st.floats(0, 99), st.sampled_from(sorted(REPAIR_OF)))
    ),
    st.lists(st.tuples(st.floats(-20, 20), st.sampled_from(["w1", None]), st.sampled_from(sorted(REPAIRS)))),
    st.integers(1, 9),
    st.integers(0, 100),
)
def test_no_limit_is_ever_passed(
    checks: list[Failing], before: list[tuple[float, str | None, str]], count: int, percentage: int
) -> None:
    runs = [run for minutes, node, repair in before for run in past(minutes, node=node, repair=repair)]
    unhealthy = {each.node for each in checks if each.node}
    found = choose(checks, runs, nodes(*unhealthy, count=count), Limits(percentage), NOW)
    if found is None:
        return
    assert found in checks
    same = [run for run in runs if (run.repair, run.node) == (found.repair, found.node)]
    assert sum(abs(NOW - run.ordered_at) < timedelta(minutes=10) for run in same) < TRIES
    assert REPAIRS[found.repair].spreads or len(unhealthy) <= max(1, count * percentage / 100)
