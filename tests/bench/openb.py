"""GPU allocation on a trace of openb, as in the FGD paper (USENIX ATC'23), by the product's own placement.

Usage: python tests/bench/openb.py --nodes NODES.csv --pods PODS.csv... [--seeds N...]; prints one line of JSON for each
trace and seed, and one with the mean of each trace. Tasks are drawn at random from the trace, with replacement, until
what they ask for comes to 130 % of the cluster's GPUs. Each is placed when it arrives, or skipped where it does not
fit, and none ever leaves. `gpu_allocation_percent` is what is held at the end of all GPUs there are. Nothing is known
of a trace before its tasks arrive.

Exits 1 where the mean of a trace of openb is below that of FGD as published. With one `--seed` in place of several it
replays once and judges nothing.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import GpuState, NodeSnapshot, Workload
from common.gpu.share import MILLI

ARRIVALS_PERCENT = 130
SEEDS = (42, 43, 44, 45)
FGD = {"default": 95.39, "cpu100": 95.35, "gpushare40": 94.15, "multigpu20": 95.65, "gpuspec10": 94.95}
"""Percent of the GPUs that FGD allocates on each trace, the mean of ten seeds (USENIX ATC'23)."""
PREFIX = "openb_pod_list_"


def read_nodes(path: Path) -> list[NodeSnapshot]:
    """Return the nodes of the trace."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [
            NodeSnapshot(
                row["sn"],
                tuple(GpuState(i, f"{row['sn']}-{i}", row["model"]) for i in range(int(row["gpu"]))),
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
            )
            for row in csv.DictReader(lines)
        ]


def read_pods(path: Path) -> list[Workload]:
    """Return the tasks of the trace; `gpu_milli` is by GPU there, and the models are parted by bars."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [
            Workload(
                row["name"],
                "openb",
                0,
                gpu_milli=int(row["num_gpu"]) * int(row["gpu_milli"]),
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
                gpu_models=tuple(sorted({model for model in (row.get("gpu_spec") or "").split("|") if model})),
            )
            for row in csv.DictReader(lines)
        ]


def arrivals(pods: list[Workload], capacity: int, seed: int) -> Iterator[Workload]:
    """Yield tasks drawn at random until they ask for 130 % of the capacity, in milli-GPU."""
    draw = random.Random(seed)
    asked = 0
    while asked * 100 < capacity * ARRIVALS_PERCENT:
        pod = draw.choice(pods)
        asked += pod.gpu_milli
        yield pod


def judged(trace: str, percents: Sequence[float]) -> dict[str, Any]:
    """Return the mean of a trace beside FGD's, and whether it is below that; a trace of others is not judged."""
    mean, aim = statistics.fmean(percents), FGD.get(trace)
    missed = aim is not None and mean < aim
    return {"trace": trace, "mean_gpu_allocation_percent": round(mean, 3), "fgd": aim, "missed": missed}


def replay(nodes: list[NodeSnapshot], pods: list[Workload], seed: int) -> dict[str, float | int]:
    """Return the figures of one replay."""
    cluster = ClusterState(nodes)
    capacity = sum(len(node.gpus) for node in nodes) * MILLI
    held = arrived = placed = 0
    decisions: list[float] = []
    for pod in arrivals(pods, capacity, seed):
        arrived += 1
        started = time.perf_counter()
        placements = cluster.find(pod)
        if placements:
            cluster.allocate(placements, pod)
        else:
            cluster.observe(pod)
        decisions.append(time.perf_counter() - started)
        if placements:
            placed += 1
            held += pod.gpu_milli
    decisions.sort()
    return {
        "gpu_allocation_percent": round(100 * held / capacity, 3),
        "placements_per_second": round(placed / sum(decisions)),
        "decision_p50_ms": round(decisions[len(decisions) // 2] * 1000, 3),
        "decision_p99_ms": round(decisions[len(decisions) * 99 // 100] * 1000, 3),
        "arrived": arrived,
        "placed": placed,
        "seed": seed,
    }


def main() -> None:
    """Replay traces with seeds; the exit code says whether all means reach those of FGD."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=Path, required=True)
    parser.add_argument("--pods", type=Path, nargs="+", required=True)
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, help="a single one, which judges nothing")
    seeds.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    is_single = options.seed is not None
    missed = False
    for path in options.pods:
        trace = path.stem.removeprefix(PREFIX)
        percents: list[float] = []
        for seed in [options.seed] if is_single else options.seeds:
            figures = replay(read_nodes(options.nodes), read_pods(path), seed)
            print(json.dumps(figures if is_single else {"trace": trace, **figures}))
            percents.append(figures["gpu_allocation_percent"])
        if not is_single:
            result = judged(trace, percents)
            print(json.dumps(result))
            missed |= result["missed"]
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
