"""Where a share fits best: fractions fill up GPUs that are shared already, whole GPUs take the tightest node."""

from __future__ import annotations

from collections.abc import Iterable

from api.scheduler.before_snapshot import MAX_SESSIONS_PER_NODE, GpuState, NodeState, Placement, Share
from appliance.gpu.share import MILLI


def place(nodes: Iterable[NodeState], milli: int) -> Placement | None:
    """Return the best place for a share on one node, or None where there is none.

    A share of 2,500 takes two whole GPUs and half of a third. The best place keeps whole GPUs free for those who need
    them: it opens no new GPU where a shared one has room, and of the nodes that fit it takes the one with least left.
    """
    best: tuple[tuple[int, int, int, str], Placement] | None = None
    for node in nodes:
        shares = _shares(node, milli)
        if shares is None:
            continue
        rank = (*_rank(node, shares), node.name)
        if best is None or rank < best[0]:
            best = rank, Placement(node.name, shares)
    return best[1] if best else None


def largest_free(node: NodeState) -> int:
    """Return the largest share that fits the node now: its free GPUs and the largest free part of another."""
    if node.sessions >= MAX_SESSIONS_PER_NODE:
        return 0
    whole = sum(1 for gpu in node.gpus if gpu.free_milli == MILLI)
    return whole * MILLI + max((gpu.free_milli for gpu in node.gpus if gpu.free_milli < MILLI), default=0)


def _shares(node: NodeState, milli: int) -> tuple[Share, ...] | None:
    if node.sessions >= MAX_SESSIONS_PER_NODE:
        return None
    whole, fraction = divmod(milli, MILLI)
    chosen: list[tuple[GpuState, int]] = []
    if fraction:
        gpu = _for_fraction(node.gpus, fraction)
        if gpu is None:
            return None
        chosen.append((gpu, fraction))
    taken = {gpu.uuid for gpu, _ in chosen}
    free = [gpu for gpu in node.gpus if gpu.free_milli == MILLI and gpu.uuid not in taken]
    if len(free) < whole:
        return None
    chosen += [(gpu, MILLI) for gpu in sorted(free, key=lambda gpu: gpu.index)[:whole]]
    return tuple(Share(gpu.index, gpu.uuid, part) for gpu, part in sorted(chosen, key=lambda item: item[0].index))


def _for_fraction(gpus: tuple[GpuState, ...], fraction: int) -> GpuState | None:
    """Return the fullest GPU that still has room for the fraction."""
    fitting = [gpu for gpu in gpus if gpu.free_milli >= fraction]
    return min(fitting, key=lambda gpu: (gpu.free_milli, gpu.index), default=None)


def _rank(node: NodeState, shares: tuple[Share, ...]) -> tuple[int, int, int]:
    """Rank a place, the lower the better: a GPU opened for a fraction, room left beside it, whole GPUs left."""
    given = {share.uuid: share.milli for share in shares}
    opened = beside = left = 0
    for gpu in node.gpus:
        part = given.get(gpu.uuid, 0)
        if 0 < part < MILLI:
            opened = int(gpu.free_milli == MILLI)
            beside = gpu.free_milli - part
        elif part == 0 and gpu.free_milli == MILLI:
            left += 1
    return opened, beside, left
