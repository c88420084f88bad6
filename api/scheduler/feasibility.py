"""Feasibility: which workloads could run on the empty cluster at all, and which on the nodes that are open."""

from __future__ import annotations

from dataclasses import replace

from api.scheduler.cluster import ClusterState
from api.scheduler.shortage import fitting_most
from api.scheduler.signature import Frontier, Signature, signature_of
from api.scheduler.snapshot import Workload, taking
from common.gpu.share import MAX_GPUS, MILLI

KNOWN = 10_000
"""What is known of so many signatures is remembered."""


class Feasibility:
    """What can never run on the nodes, remembered by signature for as long as the nodes stay the same."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._known: dict[Signature, str] = {}
        self._fits = Frontier(least=False)

    def never_fits(self, workload: Workload) -> str:
        """Return why the workload could not run even on the empty cluster, or nothing."""
        signature = signature_of(workload)
        if signature not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            if workload in self._fits:
                self._known[signature] = ""
                return ""
            most = fitting_most(self._cluster.layout, workload) if workload.gpu_milli <= MAX_GPUS * MILLI else None
            if most:
                self._fits.add(most)
            self._known[signature] = "" if most else self._cluster.never_fits(workload)
        return self._known[signature]


class OpenNodes:
    """What could run on the nodes that are open, were they empty; remembered until they open or close."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._fits = Frontier(least=False)
        self._vain = Frontier(least=True)
        self._least: dict[Signature, int] = {}

    def could_take(self, workload: Workload) -> bool:
        """Return whether the workload would have places if nothing else ran; what runs may end, nodes stay closed."""
        if workload in self._fits:
            return True
        if workload in self._vain:
            return False
        fits = self._cluster.fits(workload, self._cluster.layout.empty)
        (self._fits if fits else self._vain).add(workload)
        return fits

    def least_milli(self, workload: Workload) -> int:
        """Return what the workload, which could have places, would hold there at least: a slice counts whole."""
        if not self._cluster.layout.sliced or self.could_take(replace(workload, on_slices=False)):
            return workload.total_milli
        signature = signature_of(workload)
        if signature not in self._least:
            if len(self._least) >= KNOWN:
                self._least.clear()
            self._least[signature] = taking(workload, self._cluster.find(workload, if_empty=True) or ()).total_milli
        return self._least[signature]
