"""The rows over which shares are judged: tenants, their work, and the longest that a step of each may take. Pure.

The same rows run on the fake driver's virtual clock (`tests/integration/gpu/test_mixed_work.py`) and on a real card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

AS_KERNEL, AS_GRAPH, ON_STREAMS = 0, 3, 4
"""How a part is launched: as a kernel, as a graph of one kernel, on streams in turn."""

MEAN_REQUEST_MS = 150
LONGEST_REQUEST_MS = 400


@dataclass(frozen=True)
class Work:
    """What a program does over and over: its parts in turn, each (kernel, launches, how), then a synchronisation where
    it `waits`. With `every_ms` a step begins so often, and at once otherwise. `streams` are those of `ON_STREAMS`.
    """

    parts: Sequence[tuple[str, int, int]]
    waits: bool = True
    every_ms: int = 0
    streams: int = 0


TRAINING = Work([("busy_5us", 900, AS_KERNEL), ("busy_10ms", 40, AS_KERNEL)])
EVEN = Work([("busy_2ms", 4, AS_KERNEL)])
SMALL = Work([("busy_5us", 100, AS_KERNEL)])
LONG = Work([("busy_400ms", 1, AS_KERNEL)])
REQUESTS = Work([("busy_20ms", 1, AS_KERNEL)], every_ms=500)
BURSTS = Work([("busy_2ms", 50, AS_KERNEL)], every_ms=700)
GRAPHS = Work([("busy_2000ms", 1, AS_GRAPH)], waits=False)
ON_TWO_STREAMS = Work([("busy_2000ms", 1, ON_STREAMS)], waits=False, streams=2)


@dataclass(frozen=True)
class Row:
    """Tenants, each (share in thousandths, work), the longest step of each in ms, and for how many seconds they run on
    the virtual clock and on a card.

    Where a piece of work is long, the last one weighs less the longer all is watched. A step of training is 404.5 ms of
    work: in windows of 60 ms in each 200 ms it is done in the eighth of them at the latest.
    """

    tenants: Sequence[tuple[int, Work]]
    longest_ms: Sequence[float]
    seconds: int = 30
    card_seconds: int = 25


ROWS = {
    "training beside even kernels": Row([(300, TRAINING), (700, EVEN)], [1600, 100]),
    "long kernels beside even ones": Row([(300, LONG), (700, EVEN)], [1600, 200], 120, 40),
    "requests beside training": Row([(300, REQUESTS), (700, TRAINING)], [LONGEST_REQUEST_MS, 650]),
    "a tenth beside training": Row([(100, EVEN), (900, TRAINING)], [300, 600]),
    "training, small kernels and bursts": Row([(500, TRAINING), (250, SMALL), (250, BURSTS)], [1000, 250, 650]),
    "graphs that are never waited for": Row([(300, GRAPHS), (700, EVEN)], [8000, 400], 240, 60),
    "long kernels on two streams": Row([(300, ON_TWO_STREAMS), (700, EVEN)], [20_000, 400], 240, 60),
}
