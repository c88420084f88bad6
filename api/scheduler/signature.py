"""The scheduling signature of a workload: what decides where it fits."""

from __future__ import annotations

from api.scheduler.snapshot import Workload

Signature = tuple[object, ...]


def signature_of(workload: Workload) -> Signature:
    """Return the same for workloads that fit in the same places, whoever owns them."""
    return (
        workload.replicas,
        workload.gpu_milli,
        workload.cpu_milli,
        workload.memory_mib,
        workload.groups,
        workload.grouped_only,
        workload.gpu_models,
        workload.within,
        workload.within_required,
        workload.enforcement,
        workload.on_slices,
    )
