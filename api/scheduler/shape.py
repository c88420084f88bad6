"""What decides where a workload fits."""

from __future__ import annotations

from api.scheduler.snapshot import Workload

Shape = tuple[object, ...]


def shape(workload: Workload) -> Shape:
    """Return the same for workloads that fit in the same places, whoever owns them."""
    return (
        workload.containers,
        workload.gpu_milli,
        workload.cpu_milli,
        workload.memory_mib,
        workload.groups,
        workload.grouped_only,
        workload.models,
        workload.within,
        workload.within_required,
    )
