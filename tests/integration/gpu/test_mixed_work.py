"""Compute shares of programs that do work of several kinds: each tenant gets its share, and nobody waits for long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.cuda.clients import Bench, build_clock
from tests.fakes.cuda.steps import AS_GRAPH, ON_STREAMS, Got, Work, together

POINTS = 0.03
LEAST_USED = 0.95
MEAN_REQUEST_MS = 150
LONGEST_REQUEST_MS = 400

TRAINING = Work([("busy_5us", 900, 0), ("busy_10ms", 40, 0)])
EVEN = Work([("busy_2ms", 4, 0)])
SMALL = Work([("busy_5us", 100, 0)])
LONG = Work([("busy_400ms", 1, 0)])
REQUESTS = Work([("busy_20ms", 1, 0)], every_ms=500)
BURSTS = Work([("busy_2ms", 50, 0)], every_ms=700)
GRAPHS = Work([("busy_2000ms", 1, AS_GRAPH)], waits=False)
ON_TWO_STREAMS = Work([("busy_2000ms", 1, ON_STREAMS)], waits=False, streams=2)


@dataclass(frozen=True)
class Row:
    """Tenants, each (share in thousandths, work), the longest step of each in ms, and how long they run.

    Where a piece of work is long, the last one weighs less the longer all is watched.
    """

    tenants: Sequence[tuple[int, Work]]
    longest_ms: Sequence[float]
    seconds: int = 30


ROWS = {
    "training beside even kernels": Row([(300, TRAINING), (700, EVEN)], [1500, 100]),
    "long kernels beside even ones": Row([(300, LONG), (700, EVEN)], [1500, 800], seconds=120),
    "requests beside training": Row([(300, REQUESTS), (700, TRAINING)], [LONGEST_REQUEST_MS, 650]),
    "a tenth beside training": Row([(100, EVEN), (900, TRAINING)], [300, 600]),
    "training, small kernels and bursts": Row([(500, TRAINING), (250, SMALL), (250, BURSTS)], [1000, 250, 650]),
    "graphs that are never waited for": Row([(300, GRAPHS), (700, EVEN)], [8000, 3400], seconds=240),
    "long kernels on two streams": Row([(300, ON_TWO_STREAMS), (700, EVEN)], [20_000, 7000], seconds=240),
}


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
    assert sum(one.used(milli) for (milli, _), one in zip(row.tenants, got, strict=True)) >= LEAST_USED, got


@pytest.mark.parametrize(("how", "held"), [(0, True), (ON_STREAMS, False)], ids=["the same stream", "another stream"])
def test_a_launch_is_held_for_good_only_behind_work_that_cannot_wait_for_it(
    bench: Bench, clock: Path, tmp_path: Path, how: int, held: bool
) -> None:
    work = Work([("busy_5000ms", 1, 0), ("busy_2ms", 1, how)], waits=False, streams=1)
    got = together(bench, clock, tmp_path, [(1000, work)], seconds=1)
    assert (got[0].longest_ms >= 4900) is held
