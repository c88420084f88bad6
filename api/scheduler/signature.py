"""The scheduling signature of a workload: what decides where it fits."""

from __future__ import annotations

from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import Workload

Signature = tuple[object, ...]
KNOWN = 10_000
"""What is known of so many signatures is remembered."""


def signature_of(workload: Workload) -> Signature:
    """Return the same for workloads that fit in the same places, whoever owns them."""
    return (
        workload.containers,
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


class Feasibility:
    """What can never run on the nodes, remembered by signature for as long as the nodes stay the same."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._known: dict[Signature, str] = {}

    def never_fits(self, workload: Workload) -> str:
        """Return why the workload could not run even on the empty cluster, or nothing."""
        signature = signature_of(workload)
        if signature not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[signature] = self._cluster.never_fits(workload)
        return self._known[signature]
