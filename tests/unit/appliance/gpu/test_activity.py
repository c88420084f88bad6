"""Who works on a GPU in fair mode, by who had something to launch at each look."""

from __future__ import annotations

from appliance.gpu.activity import MOST, REST, SOON, Activity
from appliance.gpu.timetable import Sharer


def looked(activity: Activity, looks: int, **active: bool) -> set[str]:
    """Look so many times; names say their share of the GPU in hundredths, as in `a30`."""
    working: set[str] = set()
    for _ in range(looks):
        working = activity.look(Sharer(name, 10 * int(name[1:]), on) for name, on in active.items())
    return working


def test_before_anybody_has_worked_who_has_something_to_launch_does() -> None:
    assert looked(Activity(), 1, a30=True, b60=False) == {"a30"}
    assert looked(Activity(), 1, a30=False, b60=False) == set()


def test_who_comes_works_after_some_looks_and_at_once_with_more_than_half() -> None:
    small, large = Activity(), Activity()
    looked(small, MOST, a30=False, b40=True)
    assert looked(small, MOST - 1, a30=True, b40=True) == {"b40"}
    assert looked(small, 1, a30=True, b40=True) == {"a30", "b40"}
    looked(large, MOST, a80=False, b10=True)
    assert looked(large, SOON - 1, a80=True, b10=True) == {"b10"}
    assert looked(large, 1, a80=True, b10=True) == {"a80", "b10"}


def test_who_looks_in_moves_nobody() -> None:
    activity = Activity()
    looked(activity, MOST, a30=True, b60=True, c10=False)
    for _ in range(50):
        assert looked(activity, 1, a30=True, b60=True, c10=True) == {"a30", "b60"}
        assert looked(activity, 1, a30=True, b60=True, c10=False) == {"a30", "b60"}


def test_who_has_nothing_for_some_looks_in_a_row_rests() -> None:
    activity = Activity()
    looked(activity, MOST, a30=True, b60=True)
    assert looked(activity, MOST // REST - 1, a30=False, b60=True) == {"a30", "b60"}
    assert looked(activity, 1, a30=False, b60=True) == {"b60"}


def test_a_single_look_without_ends_nobodys_work() -> None:
    activity = Activity()
    looked(activity, MOST, a30=True, b60=True)
    for _ in range(20):
        assert looked(activity, 1, a30=False, b60=True) == {"a30", "b60"}
        assert looked(activity, REST, a30=True, b60=True) == {"a30", "b60"}


def test_where_all_rest_nothing_moves_until_somebody_comes() -> None:
    activity = Activity()
    looked(activity, MOST, a30=True, b60=False)
    assert looked(activity, 20, a30=False, b60=False) == {"a30"}
    assert looked(activity, 1, a30=False, b60=True) == {"b60"}, "nobody is asked to wait for who rests"


def test_containers_that_are_gone_count_no_more() -> None:
    activity = Activity()
    looked(activity, MOST, a30=True, b60=True)
    assert looked(activity, 1, b60=True) == {"b60"}
    assert looked(activity, 1) == set()
    assert looked(activity, 1, a30=True, b60=False) == {"a30"}
