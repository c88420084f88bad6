"""What is told of denied calls stays bounded, and is told until the control API has it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from appliance.agent.sandbox.denied_calls import MAX_REPORT, MAX_SERIES, OTHERS, DeniedCalls, SeenCall

START = datetime(2027, 1, 1, tzinfo=UTC)


def attempt(second: int = 0, container: str = "c1", call: str = "mkdir", process: str = "sh", pid: int = 7) -> SeenCall:
    return SeenCall(container, f"s-{container}", call, process, pid, "EPERM", START + timedelta(seconds=second))


def test_calls_of_one_kind_are_one_series_that_grows() -> None:
    denied = DeniedCalls()
    for second in range(3):
        denied.note(attempt(second, pid=second + 1))
    denied.note(attempt(9, process="bash"))
    first, other = denied.untold()
    assert (first.count, first.pid, first.first_at, first.last_at) == (3, 3, START, START + timedelta(seconds=2))
    assert (other.process, other.count) == ("bash", 1)


def test_a_series_is_told_again_only_when_it_has_grown() -> None:
    denied = DeniedCalls()
    denied.note(attempt())
    told = denied.untold()
    denied.note(attempt(1))
    denied.tell(told)
    [more] = denied.untold()
    assert (more.count, more.first_at) == (2, START)
    denied.tell([more])
    assert not denied.untold()


def test_a_container_has_only_so_many_series_and_the_rest_is_put_together() -> None:
    denied = DeniedCalls()
    for number in range(MAX_SERIES + 20):
        denied.note(attempt(process=f"p{number}"))
    denied.note(attempt(process="p0"))
    denied.note(attempt(container="c2"))
    series = {each.process: each for each in denied.untold() if each.container_id == "c1"}
    assert len(series) == MAX_SERIES + 1
    assert (series[OTHERS].call, series[OTHERS].count, series["p0"].count) == (OTHERS, 20, 2)
    assert any(each.container_id == "c2" for each in denied.untold()), "a neighbour has room of its own"


def test_a_report_has_only_so_many_and_the_next_one_the_rest() -> None:
    denied = DeniedCalls()
    for container in range(MAX_REPORT // 50 + 1):
        for number in range(50):
            denied.note(attempt(container=f"c{container}", process=f"p{number}"))
    told = denied.untold()
    assert len(told) == MAX_REPORT
    denied.tell(told)
    assert len(denied.untold()) == 50


def test_what_has_been_told_of_an_ended_container_is_forgotten_and_nothing_else() -> None:
    denied = DeniedCalls()
    denied.note(attempt())
    denied.note(attempt(container="c2"))
    denied.tell(denied.untold())
    denied.note(attempt(5, container="c3"))
    denied.forget_all_but({"c2"})
    denied.note(attempt(9))
    denied.note(attempt(9, container="c2"))
    found = {each.container_id: (each.count, each.first_at) for each in denied.untold()}
    later = START + timedelta(seconds=9)
    assert found == {"c3": (1, START + timedelta(seconds=5)), "c1": (1, later), "c2": (2, START)}


def test_who_has_just_been_told_waits_for_those_who_have_not() -> None:
    """Though they go on all the time: a thousand loops keep no other program's call from being told."""
    denied = DeniedCalls()
    for number in range(MAX_REPORT):
        denied.note(attempt(container=f"loop{number}"))
    denied.note(attempt(container="quiet"))
    assert denied.reports == 2
    denied.tell(denied.untold())
    for number in range(MAX_REPORT):
        denied.note(attempt(container=f"loop{number}"))
    assert denied.untold()[0].container_id == "quiet"
