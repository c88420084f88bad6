"""Compute shares of programs that do work of several kinds: each tenant gets its share, and nobody waits for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.gpu.layout import ENDLESS_NS
from appliance.gpu.share_files import read_account
from common.gpu.kinds import Compute
from tests.fakes.cuda.clients import Bench, build_clock
from tests.fakes.cuda.sharing import START_NS
from tests.fakes.cuda.steps import ANEW, BY_ASKING, BY_EVENT, BY_STREAMS, BY_SYNCHRONISING, WITH_GRIDS, Got, together
from tests.gpu.rows import EVEN, LONG, MEAN_REQUEST_MS, ON_STREAMS, REQUESTS, ROWS, Row, Work

POINTS = 0.03
LEAST_USED = 0.95


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_clock(tmp_path_factory.mktemp("clock"))


def run(bench: Bench, clock: Path, folder: Path, row: Row) -> list[Got]:
    return together(bench, clock, folder, row.tenants, row.seconds)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_tenant_gets_its_share_while_it_has_work_and_nothing_is_lost(
    bench: Bench, clock: Path, tmp_path: Path, row: Row
) -> None:
    got = run(bench, clock, tmp_path, row)
    for (milli, work), one, longest in zip(row.tenants, got, row.longest_ms, strict=True):
        assert one.longest_ms <= longest, got
        # work of the others that it waited for is not its own
        assert one.busy <= one.part + POINTS, got
        if work is REQUESTS:
            assert one.mean_ms <= MEAN_REQUEST_MS, got
        else:
            assert one.part_while_working == pytest.approx(milli / 1000, abs=POINTS), got
    # none of it runs for long enough to be told as endless
    assert not any(read_account(tmp_path / f"tenant-{number}/account")[0].endless_ns for number in range(len(got)))
    assert sum(one.used(milli) for (milli, _), one in zip(row.tenants, got, strict=True)) >= LEAST_USED, got


@pytest.mark.parametrize("row", list(ROWS.values())[:5], ids=list(ROWS)[:5])
def test_in_fair_mode_each_tenant_gets_its_share_at_least_and_what_one_leaves_the_others_use(
    bench: Bench, clock: Path, tmp_path: Path, row: Row
) -> None:
    got = together(bench, clock, tmp_path, row.tenants, min(row.seconds, 60), mode=Compute.FAIR)
    for (milli, work), one, longest in zip(row.tenants, got, row.longest_ms, strict=True):
        assert one.longest_ms <= longest, got
        if work is REQUESTS:
            assert one.mean_ms <= MEAN_REQUEST_MS, got
        else:
            assert one.part_while_working >= milli / 1000 - POINTS, got
    # in each row somebody has work all the time
    assert sum(one.part for one in got) >= LEAST_USED, got


def test_in_fair_mode_who_looks_in_once_a_second_changes_the_shares_of_nobody(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    tenants = [(300, LONG), (600, EVEN), (99, Work([("busy_20us", 1, 0)], every_ms=1000))]
    got = together(bench, clock, tmp_path, tenants, 60, mode=Compute.FAIR)
    assert [one.part for one in got[:2]] == pytest.approx([1 / 3, 2 / 3], abs=0.05), got
    assert sum(one.part for one in got) >= LEAST_USED, got


@pytest.mark.parametrize("kernel", ["busy_150ms", "busy_400ms"])
def test_who_comes_back_in_fair_mode_has_its_share_beside_long_kernels_that_had_all_the_time_before(
    bench: Bench, clock: Path, tmp_path: Path, kernel: str
) -> None:
    comes, always = Work([("busy_2ms", 6000, 0)], every_ms=30_000), Work([(kernel, 1, 0)])
    tenants = [(800, comes), (100, always), (100, always)]
    got = together(bench, clock, tmp_path, tenants, 88, mode=Compute.FAIR)
    # a kernel that runs when it comes is not stopped
    assert got[0].part_while_working >= 0.8 - 2 * POINTS, got
    assert all(one.part >= 0.2 for one in got[1:]), got
    assert sum(one.part for one in got) >= LEAST_USED, got


def test_those_who_always_work_have_their_shares_in_fair_mode_as_well(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    tenants = [(300, LONG), (300, EVEN), (400, Work([("busy_150ms", 2, 0)]))]
    got = together(bench, clock, tmp_path, tenants, 60, mode=Compute.FAIR)
    assert [one.part for one in got] == pytest.approx([0.3, 0.3, 0.4], abs=POINTS), got
    assert sum(one.part for one in got) >= LEAST_USED, got


WAYS = {"synchronises": BY_SYNCHRONISING, "waits for an event": BY_EVENT, "asks for an event": BY_ASKING}
UNEVEN = {
    "functions that are new each time": Work([("busy_400ms", 1, ANEW)], streams=1),
    "one function with grids of two sizes": Work([("busy_5us", 1, WITH_GRIDS)], streams=1),
}


@pytest.mark.parametrize("wait", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("work", UNEVEN.values(), ids=UNEVEN)
def test_nobody_gets_more_by_another_way_to_wait_for_work_whose_length_is_hard_to_know(
    bench: Bench, clock: Path, tmp_path: Path, work: Work, wait: int
) -> None:
    [got] = together(bench, clock, tmp_path, [(300, work)], 40, wait=wait)
    assert got.part == pytest.approx(0.3, abs=POINTS), got
    assert got.busy == pytest.approx(got.part, abs=POINTS), got


@pytest.mark.parametrize("wait", WAYS.values(), ids=WAYS)
def test_a_recording_that_stays_open_takes_no_share_from_others(
    bench: Bench, clock: Path, tmp_path: Path, wait: int
) -> None:
    work = Work([("busy_400ms", 1, ON_STREAMS)], streams=1)
    [got] = together(bench, clock, tmp_path, [(300, work)], 40, wait=wait, before=["streamaside 9", "capture 9"])
    assert got.part == pytest.approx(0.3, abs=POINTS), got


def test_waiting_behind_neighbours_is_not_learned_as_the_length_of_short_kernels_on_two_streams(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    short = Work([("busy_5us", 20, ON_STREAMS)], streams=2)
    even, got = together(
        bench,
        clock,
        tmp_path,
        [(300, Work([("busy_2ms", 4, ON_STREAMS)], streams=1)), (700, short)],
        20,
        wait=BY_STREAMS,
    )
    assert even.part == pytest.approx(0.3, abs=POINTS)
    assert got.part >= 0.6, got


def test_short_kernels_have_their_share_beside_long_ones(bench: Bench, clock: Path, tmp_path: Path) -> None:
    short = Work([("busy_500us", 100, ON_STREAMS)], waits=False, streams=2)
    long = [(400, Work([("busy_150ms", 2, 0), ("busy_20ms", 1, 0)])), (500, Work([("busy_150ms", 3, 0)]))]
    got = together(bench, clock, tmp_path, [(100, short), *long], 40, wait=BY_EVENT)
    assert [one.part for one in got] == pytest.approx([0.1, 0.4, 0.5], abs=0.01), got
    assert got[0].longest_ms < 1500, got


def test_a_small_share_holds_beside_three_with_kernels_longer_than_a_period(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    small = Work([("busy_500us", 20, ON_STREAMS)], streams=3)
    long = [Work([("busy_150ms", 2, 0)]), Work([("busy_250ms", 2, 0)]), Work([("busy_400ms", 1, 0)])]
    tenants = [(50, small), *zip((350, 300, 300), long, strict=True)]
    got = together(bench, clock, tmp_path, tenants, 40)
    assert [one.part for one in got] == pytest.approx([0.05, 0.35, 0.3, 0.3], abs=0.015), got


IDLE = {
    "one short kernel each half second": Work([("busy_5us", 1, 0)], every_ms=500),
    "some work each 40 ms": Work([("busy_2ms", 4, 0)], every_ms=40),
}


@pytest.mark.parametrize("idle", IDLE.values(), ids=IDLE)
def test_a_second_process_that_mostly_rests_takes_nothing_from_what_is_owed_to_the_first(
    bench: Bench, clock: Path, tmp_path: Path, idle: Work
) -> None:
    row = ROWS["long kernels beside even ones"]
    got = together(bench, clock, tmp_path, row.tenants, 40, beside=[(1, idle)])
    assert got[0].part == pytest.approx(0.3, abs=POINTS), got
    assert 0.48 < got[1].part <= 0.73, got
    assert got[0].part + got[1].busy >= LEAST_USED, got


def test_work_that_began_before_there_was_a_timetable_is_held_as_all_other(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    row = ROWS["graphs that are never waited for"]
    got = together(bench, clock, tmp_path, row.tenants, 180, planned_after_s=1)
    assert [one.part for one in got] == pytest.approx([0.3, 0.7], abs=0.05), got


def test_launches_behind_work_that_does_not_end_on_their_stream_are_held_once(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    work = Work([("busy_100000ms", 1, 0), ("busy_2ms", 10, 0)], waits=False)
    [got] = together(bench, clock, tmp_path, [(1000, work)], seconds=1)
    assert got.longest_ms < 12_000


def test_a_launch_is_held_for_six_seconds_at_most_behind_work_on_another_stream_however_long_that_is(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    work = Work([("busy_20000ms", 1, 0), ("busy_2ms", 1, ON_STREAMS)], waits=False, every_ms=30_000, streams=1)
    [got] = together(bench, clock, tmp_path, [(1000, work)], seconds=100)
    assert 900 < got.longest_ms < 6500


def test_programs_that_nothing_holds_have_even_slices_whatever_the_length_of_their_kernels(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    tenants = [(500, Work([("busy_1ms", 8, 0)])), (500, Work([("busy_20ms", 8, 0)]))]
    got = together(bench, clock, tmp_path, tenants, 5, held=False)
    assert [round(one.part, 1) for one in got] == [0.5, 0.5]


@pytest.mark.parametrize(("kernel", "told"), [("busy_5000ms", False), ("busy_15000ms", True)])
@pytest.mark.parametrize("how", [0, ON_STREAMS], ids=["the same stream", "another stream"])
def test_work_that_runs_for_ten_seconds_is_told_by_whoever_waits_behind_it(
    bench: Bench, clock: Path, tmp_path: Path, kernel: str, told: bool, how: int
) -> None:
    work = Work([(kernel, 1, 0), ("busy_2ms", 300, how)], waits=False, streams=1)
    together(bench, clock, tmp_path, [(1000, work)], seconds=20)
    total = read_account(tmp_path / "tenant-0/account")[0]
    assert (total.endless_ns > START_NS + ENDLESS_NS) is told


@pytest.mark.parametrize(("how", "held"), [(0, True), (ON_STREAMS, False)], ids=["the same stream", "another stream"])
def test_a_launch_is_held_for_good_only_behind_work_that_cannot_wait_for_it(
    bench: Bench, clock: Path, tmp_path: Path, how: int, held: bool
) -> None:
    work = Work([("busy_8000ms", 1, 0), ("busy_2ms", 1, how)], waits=False, streams=1)
    got = together(bench, clock, tmp_path, [(1000, work)], seconds=1)
    assert (got[0].longest_ms >= 7900) is held


def test_a_kernel_is_held_until_that_of_another_stream_may_have_ended_beside_a_neighbour(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    """As on cards, slices cost a part of the time, and kernels of several streams hold each other up."""
    row = ROWS["long kernels on two streams"]
    costs = {"FAKE_GPU_SLICES_COST": "80", "FAKE_GPU_STREAMS_COST": "8"}
    got = together(bench, clock, tmp_path, row.tenants, row.seconds, machine=costs)
    assert [one.part for one in got] == pytest.approx([0.3, 0.7], abs=POINTS), got
    assert sum(one.part for one in got) >= LEAST_USED, got
