"""Windows of containers that share a GPU."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from appliance.gpu.timetable import Sharer, Window, boundary, current, is_active, plan
from common.gpu.kinds import Compute
from common.gpu.share import MILLI

PERIOD = 200_000_000


@st.composite
def gpus(draw: st.DrawFn) -> list[Sharer]:
    """Sharers of one GPU, whose shares are together at most the GPU."""
    shares = draw(st.lists(st.integers(1, 400), min_size=1, max_size=10))
    while sum(shares) > MILLI:
        shares.pop()
    return [Sharer(f"c{index}", milli, draw(st.booleans())) for index, milli in enumerate(shares)]


def admits(window: Window, now_ns: int) -> bool:
    """Whether a launch may begin now, as the library decides that reads the timetable."""
    into_ns = (now_ns - window.epoch_ns) % window.period_ns - window.offset_ns if window.period_ns else -1
    return 0 <= into_ns < window.length_ns


def keeping(sharers: list[Sharer], mode: Compute) -> set[str]:
    """Whose windows are nobody else's: in fair mode those of the active ones, where there are any."""
    active = {sharer.container for sharer in sharers if sharer.active}
    return active if active and mode is Compute.FAIR else {sharer.container for sharer in sharers}


modes = st.sampled_from([Compute.STRICT, Compute.FAIR])
periods = st.integers(20_000_000, 2_000_000_000)
starts = st.integers(0, 10**15)


@given(sharers=gpus(), mode=modes, period=periods, start=starts)
def test_windows_of_a_plan_lie_within_the_period_and_never_overlap_but_for_those_of_who_rests(
    sharers: list[Sharer], mode: Compute, period: int, start: int
) -> None:
    planned = plan(sharers, mode, period, start)
    assert len(planned) == len(sharers)
    assert all(each.offset_ns >= 0 and each.offset_ns + each.length_ns <= period for each in planned.values())
    windows = sorted((planned[name] for name in keeping(sharers, mode)), key=lambda window: window.offset_ns)
    assert all(one.offset_ns + one.length_ns <= other.offset_ns for one, other in pairwise(windows))


@given(sharers=gpus(), active=st.booleans(), period=periods)
def test_strict_windows_are_in_proportion_to_the_shares_whoever_is_active(
    sharers: list[Sharer], active: bool, period: int
) -> None:
    everyone = [Sharer(sharer.container, sharer.milli, active) for sharer in sharers]
    windows = plan(everyone, Compute.STRICT, period, 0)
    for sharer in sharers:
        assert abs(windows[sharer.container].length_ns - period * sharer.milli / MILLI) < 1


@given(sharers=gpus(), period=periods)
def test_fair_divides_the_whole_period_among_the_active_in_the_ratio_of_their_shares(
    sharers: list[Sharer], period: int
) -> None:
    windows = plan(sharers, Compute.FAIR, period, 0)
    # where nobody is active, everybody is treated as if they were
    served = [sharer for sharer in sharers if sharer.active] or sharers
    total = sum(sharer.milli for sharer in served)
    assert sum(windows[sharer.container].length_ns for sharer in served) == period
    for sharer in served:
        assert abs(windows[sharer.container].length_ns - period * sharer.milli / total) < 1


@given(sharers=gpus(), period=periods)
def test_fair_windows_of_who_rests_are_twice_its_share_and_move_with_nobody(sharers: list[Sharer], period: int) -> None:
    windows, total = plan(sharers, Compute.FAIR, period, 0), sum(sharer.milli for sharer in sharers)
    others = [Sharer(each.container, each.milli, active=index == 0) for index, each in enumerate(sharers)]
    for sharer in sharers[1:] if any(sharer.active for sharer in sharers) else []:
        if not sharer.active:
            assert abs(windows[sharer.container].length_ns - min(period, 2 * period * sharer.milli / total)) <= 2
            assert windows[sharer.container] == plan(others, Compute.FAIR, period, 0)[sharer.container]


def test_a_strict_plan_leaves_idle_what_nobody_was_given() -> None:
    windows = plan([Sharer("a", 250), Sharer("b", 500)], Compute.STRICT, PERIOD, 0)
    assert (windows["a"].offset_ns, windows["a"].length_ns) == (0, PERIOD // 4)
    assert (windows["b"].offset_ns, windows["b"].length_ns) == (PERIOD // 4, PERIOD // 2)


def test_a_lone_sharer_computes_all_the_time_where_that_is_fair() -> None:
    assert plan([Sharer("a", 125)], Compute.FAIR, PERIOD, 0)["a"].length_ns == PERIOD
    assert plan([Sharer("a", 125)], Compute.STRICT, PERIOD, 0)["a"].length_ns == PERIOD // 8


@given(now=starts, period=periods, part=st.integers(0, 10))
def test_a_plan_begins_with_a_period_and_late_enough_to_be_known(now: int, period: int, part: int) -> None:
    lead = period * part // 10
    start = boundary(now, period, lead)
    assert start % period == 0
    assert lead <= start - now < lead + period


@given(before=gpus(), after=gpus(), modes=st.tuples(modes, modes), period=periods, now=starts, data=st.data())
def test_a_change_takes_effect_at_the_boundary_and_nobody_who_works_overlaps_on_either_side(
    before: list[Sharer],
    after: list[Sharer],
    modes: tuple[Compute, Compute],
    period: int,
    now: int,
    data: st.DataObject,
) -> None:
    start = boundary(now, period, period // 10)
    old = plan(before, modes[0], period, 0)
    new = plan(after, modes[1], period, start)
    moment = data.draw(st.integers(now, start + 3 * period))
    valid = {
        name: current([old.get(name, Window()), new.get(name, Window())], moment) for name in old.keys() | new.keys()
    }
    # a container without a place in the new plan has left the GPU
    keep = keeping(before, modes[0]) if moment < start else keeping(after, modes[1])
    admitted = [name for name, window in valid.items() if admits(window, moment) and name in keep]
    assert len(admitted) <= 1
    for name in admitted:
        assert valid[name] == (old if moment < start else new)[name]


@given(sharers=gpus(), period=periods, now=st.integers(1, 10**15))
def test_who_wants_to_launch_again_has_a_window_within_a_period(sharers: list[Sharer], period: int, now: int) -> None:
    woken = sharers[0].container
    assert is_active(now, now, period)
    everyone = [Sharer(woken, sharers[0].milli, True), *sharers[1:]]
    start = boundary(now, period, period // 10)
    window = plan(everyone, Compute.FAIR, period, start)[woken]
    assert window.length_ns > 0
    assert start - now <= period + period // 10


def test_a_sharer_is_idle_a_look_after_its_last_launch_and_before_its_first() -> None:
    assert not is_active(0, 10**15, PERIOD)
    assert is_active(10**15, 10**15 + PERIOD // 4, PERIOD)
    assert not is_active(10**15, 10**15 + PERIOD // 2, PERIOD)


def test_a_window_admits_from_its_offset_on_for_its_length_in_every_period() -> None:
    window = Window(from_ns=0, epoch_ns=0, period_ns=100, offset_ns=30, length_ns=20)
    assert [moment for moment in range(0, 300, 10) if admits(window, moment)] == [30, 40, 130, 140, 230, 240]
    assert not admits(Window(), 0)
