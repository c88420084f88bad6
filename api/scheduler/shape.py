"""The scheduling signature of a workload: what decides where it fits."""

from __future__ import annotations

from api.scheduler.cluster import Cluster
from api.scheduler.snapshot import Workload

Shape = tuple[object, ...]
KNOWN = 10_000
"""So many verdicts are remembered."""


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
        workload.enforcement,
        workload.on_slices,
    )


class Verdicts:
    """What can never run on the nodes, remembered by shape for as long as the nodes stay the same."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[Shape, str] = {}

    def never_fits(self, workload: Workload) -> str:
        """Return why the workload could not run even on the empty cluster, or nothing."""
        kind = shape(workload)
        if kind not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[kind] = self._cluster.never_fits(workload)
        return self._known[kind]
