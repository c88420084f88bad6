"""Nodes that take nothing new, in reasons to wait: what administrators want of them, and which checks fail."""

from __future__ import annotations

import numpy as np

from api.scheduler.capacity import Layout
from api.scheduler.phrases import some
from api.scheduler.snapshot import Workload
from api.scheduler.topology import allowed
from common.sentence import Sentence, Several

NAMED = 3
"""So many nodes are named at most."""


def with_closed(phrase: str, layout: Layout, workload: Workload) -> str:
    """Return a phrase with the nodes that administrators keep from new work, and with those that are unhealthy."""
    nodes = [layout.nodes[row] for row in np.flatnonzero(allowed(layout, workload))]
    kept, drained = ([node.name for node in nodes if node.mode == mode] for mode in ("maintenance", "draining"))
    told = [phrase]
    if kept:
        told.append(
            Sentence.counted(
                "{nodes} is in maintenance", "{nodes} are in maintenance", len(kept), nodes=some(kept, NAMED)
            )
        )
    if drained:
        told.append(
            Sentence.counted(
                "{nodes} is being drained", "{nodes} are being drained", len(drained), nodes=some(drained, NAMED)
            )
        )
    return with_unhealthy(Sentence("{names}", names=Several(told)) if len(told) > 1 else phrase, layout, workload)


def with_unhealthy(phrase: str, layout: Layout, workload: Workload) -> str:
    """Return a phrase with the nodes that the workload may use, and that take nothing as they are unhealthy."""
    nodes = allowed(layout, workload)
    rows = [row for row in layout.unhealthy if nodes[row]]
    told = [
        Sentence("{node} is unhealthy ({why})", node=layout.nodes[row].name, why=layout.nodes[row].unhealthy)
        for row in rows[:NAMED]
    ]
    if not told:
        return phrase
    found = Sentence("{names}", names=Several([phrase, *told]))
    if len(rows) <= NAMED:
        return found
    return Sentence("{names}, and {count} more", names=found, count=len(rows) - NAMED)
