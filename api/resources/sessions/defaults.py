"""Defaults of sessions that do not say how much memory and disk they want. Pure.

It is the part of a node that goes with its GPUs, or without any with its cores: so nobody has all of a node's memory
who only forgot to ask for less, and what is counted is what the container gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from api.resources.groups.permissions import Groups
from api.scheduler.snapshot import UNLIMITED, NodeSnapshot
from api.settings import Settings
from common.gpu.share import MILLI

LEAST_MEMORY_MIB = 256
LEAST_DISK_MIB = 1024
_UNKNOWN_NODE_MIB = 4096
"""Memory for a GPU or a core where no node says how much it has."""


def memory_mib(
    gpu_milli: int, cpu_milli: int, nodes: Iterable[NodeSnapshot], settings: Settings, *, most: int | None
) -> int:
    """Return the memory of a container; of `nodes`, which could run it, the one with the least for each GPU counts.

    It is never more than `most`.
    """
    said = settings.memory_per_gpu_mib if gpu_milli else settings.memory_per_core_mib
    each = said or min(_parts(nodes, gpus=bool(gpu_milli)), default=_UNKNOWN_NODE_MIB)
    wanted = max(LEAST_MEMORY_MIB, (gpu_milli or cpu_milli) * each // MILLI)
    return wanted if most is None else max(1, min(wanted, most))


def disk_mib(gpu_milli: int, cpu_milli: int, settings: Settings) -> int:
    """Return what a container may write beside its mounts."""
    each = settings.disk_per_gpu_mib if gpu_milli else settings.disk_per_core_mib
    return max(LEAST_DISK_MIB, (gpu_milli or cpu_milli) * each // MILLI)


def fitting(nodes: Iterable[NodeSnapshot], gpu_models: tuple[str, ...], allowed: Groups) -> list[NodeSnapshot]:
    """Return the nodes that a session may use: those of its groups with GPUs of its models, if it names any."""
    groups, grouped_only = allowed

    def may_use(node: NodeSnapshot) -> bool:
        if not node.groups:
            return not grouped_only
        return groups is None or not set(groups).isdisjoint(node.groups)

    def has_model(node: NodeSnapshot) -> bool:
        return not gpu_models or any(gpu.model in gpu_models for gpu in node.gpus)

    return [node for node in nodes if may_use(node) and has_model(node)]


def _parts(nodes: Iterable[NodeSnapshot], *, gpus: bool) -> Iterator[int]:
    """Return how much memory goes with a GPU, or with a core, on each node that says so."""
    for node in nodes:
        whole = sum(gpu.capacity_milli for gpu in node.gpus) if gpus else node.cpu_milli
        if whole and UNLIMITED not in (whole, node.memory_mib):
            yield node.memory_mib * MILLI // whole
