"""Compute shares on a virtual clock: each gets what the administrator gave, however it launches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from common.gpu.kinds import Compute
from tests.fakes.cuda.clients import Bench, build_clock
from tests.fakes.cuda.sharing import shares

POINTS = 0.02


@pytest.fixture(scope="session")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_clock(tmp_path_factory.mktemp("clock"))


@pytest.mark.parametrize(
    "work",
    [
        ["busy_500us 1 0"],
        ["busy_3ms 10 0"],
        ["busy_20ms 4 0"],
        ["busy_200us 100 0"],
        ["busy_500us 1 0", "busy_15ms 8 0"],
        ["busy_15ms 8 0", "busy_500us 1 0"],
        ["busy_2ms 4 1"],
        ["busy_2ms 4 2"],
        ["busy_2ms 4 3"],
        ["busy_2ms 90 4"],
    ],
    ids=" and ".join,
)
@pytest.mark.parametrize("milli", [[300, 700], [500, 250, 250]], ids=str)
@pytest.mark.parametrize("mode", [Compute.STRICT, Compute.FAIR])
def test_the_shares_are_kept_within_two_points(
    bench: Bench, clock: Path, tmp_path: Path, milli: Sequence[int], work: Sequence[str], mode: Compute
) -> None:
    got = shares(bench, clock, tmp_path, milli, work, mode=mode)
    assert got == pytest.approx([share / 1000 for share in milli], abs=POINTS)


@pytest.mark.parametrize("way", ["linked", "dlsym", "proc:2"])
def test_launches_are_gated_however_they_were_found(bench: Bench, clock: Path, tmp_path: Path, way: str) -> None:
    got = shares(bench, clock, tmp_path, [300, 700], ["busy_2ms 4 0"], way=way)
    assert got == pytest.approx([0.3, 0.7], abs=POINTS)


def test_what_nobody_was_given_stays_idle_in_strict_mode(bench: Bench, clock: Path, tmp_path: Path) -> None:
    got = shares(bench, clock, tmp_path, [300, 200], ["busy_2ms 4 0"])
    assert got == pytest.approx([0.3, 0.2], abs=POINTS)


def test_what_nobody_was_given_is_divided_in_fair_mode(bench: Bench, clock: Path, tmp_path: Path) -> None:
    got = shares(bench, clock, tmp_path, [300, 200], ["busy_2ms 4 0"], mode=Compute.FAIR)
    assert got == pytest.approx([0.6, 0.4], abs=POINTS)


def test_processes_of_a_container_have_its_share_together(bench: Bench, clock: Path, tmp_path: Path) -> None:
    got = shares(bench, clock, tmp_path, [300, 700], ["busy_2ms 4 0"], processes=2)
    assert got == pytest.approx([0.3, 0.7], abs=POINTS)


@pytest.mark.parametrize(("work", "points"), [("busy_150ms 1 0", POINTS), ("busy_2500ms 2 0", 0.04)])
def test_kernels_longer_than_a_window_are_paid_back_to_who_had_to_share_its_own(
    bench: Bench, clock: Path, tmp_path: Path, work: str, points: float
) -> None:
    got = shares(bench, clock, tmp_path, [300, 700], [work, "busy_1ms 4 0"], seconds=180)
    # two kernels of 2.5 s at the end weigh nearly three points
    assert got == pytest.approx([0.3, 0.7], abs=points)


def test_two_processes_with_long_kernels_have_one_share_and_so_have_two_with_short_ones(
    bench: Bench, clock: Path, tmp_path: Path
) -> None:
    got = shares(bench, clock, tmp_path, [300, 700], ["busy_400ms 1 0", "busy_2ms 4 0"], processes=2, seconds=60)
    assert got == pytest.approx([0.3, 0.7], abs=0.03)


def test_where_the_agent_hangs_who_was_idle_has_its_share(bench: Bench, clock: Path, tmp_path: Path) -> None:
    got = shares(bench, clock, tmp_path, [300, 700], ["busy_2ms 4 0"], mode=Compute.FAIR, hung_after_s=15, seconds=60)
    assert got == pytest.approx([0.3, 0.7], abs=POINTS)


def test_without_compute_shares_the_gpu_is_whoever_comes_first(bench: Bench, clock: Path, tmp_path: Path) -> None:
    got = shares(bench, clock, tmp_path, [300, 700], ["busy_2ms 4 0"], mode=Compute.OFF)
    assert got == pytest.approx([0.5, 0.5], abs=POINTS)
