"""Fifty small trainings on a node of eight GPUs: a whole GPU each, or a quarter of one, by the product's own scheduler.

Usage: python tests/bench/shares.py; prints one line of JSON and ends with 1 unless sharing beats whole GPUs. Time is
simulated: the scheduler decides whenever a training has ended, and the clock jumps to the next end.

How long a training takes is a model, not a measurement. One of the kind of fashion-MNIST reads and prepares its data
on the host for `HOST_S` seconds in which its GPU waits, and has `KERNELS` SM-seconds of small kernels, which never
occupy more than `WIDTH` streaming multiprocessors at once. So it takes HOST_S + KERNELS / (min(SMs of its share, WIDTH)
x speed of an SM), give or take a tenth. A share has its part of the SMs whatever the others do, as the compute shares
of `strict` promise, and 1 GiB is all the memory that such a training needs.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from api.scheduler.planner import Planner
from api.scheduler.snapshot import GpuState, NodeSnapshot, ProjectState, Running, Workload
from common.gpu.share import MILLI, format_gpus, memory_limit

JOBS = 50
GPUS = 8
SHARE = 250
NEEDED_MIB = 1024
HOST_S = 60.0
KERNELS = 1200.0
WIDTH = 24
SPREAD = 0.1
SECOND = 1_000_000


@dataclass(frozen=True)
class Card:
    """A kind of GPU; the speed of one SM is that of single-precision arithmetic beside a V100's."""

    model: str
    sms: int
    sm_speed: float
    memory_mib: int


V100 = Card("V100", 80, 1.0, 32510)
P100 = Card("P100", 56, 0.96, 16276)


def duration_s(card: Card, milli: int) -> float:
    """Return how long a training takes with a share of a card; raises ValueError where its memory is too small."""
    if memory_limit(card.memory_mib, milli) < NEEDED_MIB:
        raise ValueError(f"{format_gpus(milli)} of a {card.model} has less than {NEEDED_MIB} MiB")
    return HOST_S + KERNELS / (min(card.sms * milli / MILLI, WIDTH) * card.sm_speed)


def makespan_s(card: Card, milli: int, jobs: int = JOBS, gpus: int = GPUS, seed: int = 1) -> float:
    """Return the seconds until all trainings, which were submitted at once, have ended."""
    node = NodeSnapshot("node", tuple(GpuState(n, f"{card.model}-{n}", card.model) for n in range(gpus)))
    planner = Planner([node], [ProjectState("research", gpus * MILLI)])
    factors = _factors(jobs, seed)
    waiting = {f"{n:03}": Workload(f"{n:03}", "research", n, f"model-{n}", gpu_milli=milli) for n in range(jobs)}
    ends: list[tuple[float, str]] = []
    now = 0.0
    while waiting or ends:
        decision = planner.decide(tuple(waiting.values()), round(now * SECOND))
        for id_, places in decision.placements.items():
            planner.add(Running(waiting.pop(id_), places, round(now * SECOND)))
            heappush(ends, (now + duration_s(card, milli) * factors[int(id_)], id_))
        if not ends:
            raise ValueError(f"nothing runs and {len(waiting)} trainings wait")
        now, ended = heappop(ends)
        planner.remove(ended)
    return now


def _factors(jobs: int, seed: int) -> Sequence[float]:
    """Return by how much each training differs from the model; the same ones on every card."""
    spread = random.Random(seed)
    return [spread.uniform(1 - SPREAD, 1 + SPREAD) for _ in range(jobs)]


def main() -> None:
    """Compare whole V100s with shares of V100s and of P100s."""
    whole, share, other = makespan_s(V100, MILLI), makespan_s(V100, SHARE), makespan_s(P100, SHARE)
    figures = {
        "bench": "shares",
        "jobs": JOBS,
        "gpus": GPUS,
        "shares_per_gpu": MILLI // SHARE,
        "needed_mib": NEEDED_MIB,
        "v100_whole_s": round(whole),
        "v100_share_s": round(share),
        "p100_share_s": round(other),
        "v100_share_speedup": round(whole / share, 2),
        "p100_share_speedup": round(whole / other, 2),
        "model": {"host_s": HOST_S, "kernels_sm_s": KERNELS, "widest_sms": WIDTH, "spread": SPREAD},
    }
    print(json.dumps(figures))
    if max(share, other) >= whole:
        sys.exit("sharing does not beat whole GPUs")


if __name__ == "__main__":
    main()
