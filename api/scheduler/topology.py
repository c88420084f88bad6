"""Topology: sets of nodes by resource group, then topology domains, where containers may lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from api.scheduler.capacity import Flags, Layout
from api.scheduler.snapshot import Workload
from common.topology import TopologyLevel

LEVELS = (TopologyLevel.ISLAND, TopologyLevel.NODE, TopologyLevel.SWITCH, TopologyLevel.ANYWHERE)
"""From the smallest topology domain to the largest."""


def levels(workload: Workload) -> tuple[TopologyLevel, ...]:
    """Return the levels to try, the smallest first, up to the largest that the workload accepts.

    Without a GPU an island means no more than the node; one container is never on several nodes.
    """
    required = LEVELS.index(workload.within) if workload.within_required else len(LEVELS) - 1
    last = min(required, LEVELS.index(TopologyLevel.NODE)) if workload.replicas == 1 else required
    if not workload.gpu_milli:
        return LEVELS[LEVELS.index(TopologyLevel.NODE) : max(last, LEVELS.index(TopologyLevel.NODE)) + 1]
    return LEVELS[: last + 1]


def node_sets(layout: Layout, workload: Workload) -> Iterator[tuple[Flags, ...]]:
    """Yield the nodes that the workload may use, by preference; each time as sets, of which a gang takes one.

    Work without a GPU goes to nodes without one first, whatever their group.
    """
    if not workload.gpu_milli:
        bare = layout.gpu_count == 0
        yield from (tuple(nodes & bare for nodes in tier) for tier in _tiers(layout, workload))
    yield from _tiers(layout, workload)


def merged(tier: Sequence[Flags]) -> Flags:
    """Return the nodes of all sets together."""
    return tier[0] if len(tier) == 1 else np.asarray(np.logical_or.reduce(tier))


def allowed(layout: Layout, workload: Workload) -> Flags:
    """Return the nodes that the workload may use at all, open or not."""
    # by what there is of them, so that made-up names take no memory
    groups = None if workload.groups is None else tuple(name for name in workload.groups if name in layout.groups)
    asked = groups, workload.grouped_only, workload.traits
    if asked not in layout.allowed:
        nothing = np.zeros(len(layout.nodes), dtype=np.bool_)
        layout.allowed[asked] = merged([nothing, *(merged(tier) for tier in _tiers(layout, workload))])
    return layout.allowed[asked]


def _tiers(layout: Layout, workload: Workload) -> Iterator[tuple[Flags, ...]]:
    if not workload.traits:
        yield from _of_groups(layout, workload)
        return
    having = layout.has_traits(workload)
    yield from (tuple(nodes & having for nodes in tier) for tier in _of_groups(layout, workload))


def _of_groups(layout: Layout, workload: Workload) -> Iterator[tuple[Flags, ...]]:
    open_to_all = () if workload.grouped_only else (layout.ungrouped,)
    if workload.groups is None:
        if layout.groups or open_to_all:
            yield (*layout.groups.values(), *open_to_all)
        return
    yield from ((layout.groups[name],) for name in workload.groups if name in layout.groups)
    if open_to_all:
        yield open_to_all
