"""A cluster in a few words: nodes with what is used of each GPU, and work to place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import GpuState, NodeSnapshot, Placement, Workload
from common.gpu.share import MILLI, GpuShare

Used = tuple[NodeSnapshot, tuple[int, ...]]


def node(name: str, *used: int, islands: Sequence[int] = (), models: Sequence[str] = (), **fields: Any) -> Used:
    """Return a node with a GPU for each number, so many milli-GPU of which are in use."""
    gpus = tuple(
        GpuState(
            index,
            f"{name}-{index}",
            model=models[index] if models else "V100",
            island=islands[index] if islands else 0,
        )
        for index in range(len(used))
    )
    return NodeSnapshot(name, gpus, **fields), used


def cluster(*nodes: Used) -> ClusterState:
    """Return the cluster with what is used already held."""
    whole = ClusterState([state for state, _ in nodes])
    for state, used in nodes:
        for gpu, milli in zip(state.gpus, used, strict=True):
            if milli:
                whole.allocate((Placement(state.name, (GpuShare(gpu.uuid, gpu.index, milli),)),), work(milli))
                # what uses the GPU is no container of its own here
                whole.state.containers[whole.layout.rows[state.name]] += 1
    return whole


def work(milli: int = MILLI, **fields: Any) -> Workload:
    """Return a workload of one container."""
    return replace(Workload("w", "p", 0, gpu_milli=milli), **fields)


def where(placements: Sequence[Placement] | None) -> list[str] | None:
    """Return the places in words: `a-0` is a whole GPU, `a-0:500` a part of one, `a` a node alone."""
    if placements is None:
        return None
    return [
        " ".join(s.uuid if s.milli == MILLI else f"{s.uuid}:{s.milli}" for s in each.shares) or each.node
        for each in placements
    ]


def fill(whole: ClusterState, workload: Workload) -> int:
    """Place the same workload until it does not fit any more; return how often it did."""
    count = 0
    while (places := whole.find(workload)) is not None:
        whole.allocate(places, workload)
        count += 1
    return count
