"""Explanations of a workload without a place: what is missing for ever, or what is free now."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from api.scheduler.capacity import PLENTY, Flags, Free, Ints, Layout, bare_fitting, is_mixed
from api.scheduler.placement import Search
from api.scheduler.signature import signature_of
from api.scheduler.snapshot import MAX_CONTAINERS_PER_NODE, Workload
from api.scheduler.topology import allowed
from common.gpu.kinds import ALONE, KINDS, Enforcement
from common.gpu.share import MAX_GPUS, MILLI, format_gpus
from common.topology import TopologyLevel

Known = dict[tuple[object, ...], tuple[int, int] | str]
"""Largest pieces that were found: row and milli-GPU, or why there is none."""
NAMED = 3
"""So many nodes are named at most."""


def never_fits(layout: Layout, workload: Workload) -> str:
    """Return what the cluster lacks for the workload even when it is empty and all its nodes are open, and the hint.

    Nothing where it fits, and where no node is known yet.
    """
    if workload.gpu_milli > MAX_GPUS * MILLI:
        return f"a container holds at most {MAX_GPUS} GPUs, not {format_gpus(workload.gpu_milli)}; ask for fewer"
    if not layout.nodes:
        return ""
    search = Search(layout, layout.empty, workload)
    most = search.most()
    if most >= workload.replicas:
        return ""
    if most:
        return _too_many(workload, most)
    nodes = allowed(layout, workload)
    if not nodes.any():
        return _no_trait(layout, workload) or _no_group(workload)
    return (
        _no_meeting(layout, workload, nodes) or _no_gpus(layout, workload, nodes) or _no_amount(layout, workload, nodes)
    )


def largest_piece(layout: Layout, free: Free, workload: Workload, known: Known | None = None) -> str:
    """Return the largest piece that is free for the workload on one open node, and where.

    Pieces are of GPUs, so equal ones are found once where what is `known` is given, whatever else is asked for.
    """
    key = (workload.gpu_milli, *signature_of(workload)[4:])
    known = {} if known is None else known
    if key not in known:
        known[key] = _largest(layout, free, workload)
    found = known[key]
    if isinstance(found, str):
        return found
    row, piece = found
    text = f"largest free piece is {gpus(piece)} on {layout.nodes[row].name}"
    short = _short_of(free, workload, row) if piece >= workload.gpu_milli else ""
    return f"{text}, {short}" if short else text


def _largest(layout: Layout, free: Free, workload: Workload) -> tuple[int, int] | str:
    """Return the row and the milli-GPU of the largest piece that is free, or why there is none."""
    nodes = layout.takes(workload) & allowed(layout, workload)
    if not nodes.any():
        return _none_open(layout, workload)
    if not workload.gpu_milli:
        return _largest_bare(layout, free, nodes)
    held = layout.holds(workload) & nodes[:, None]
    usable, slices = layout.usable(workload.gpu_models) & held, _slices(layout, workload) & held
    if not (usable.any() or slices.any()):
        beside = " that can be had in part beside whole ones" if layout.any_alone and is_mixed(workload) else ""
        return f"no node with {_models(workload)}{held_by(workload)}{beside} is ready"
    single = np.where(slices, free.milli, 0).max(axis=1, initial=0)
    pieces = np.where(free.containers > 0, np.maximum(_pieces(layout, free, workload, usable), single), 0)
    row = int(np.argmax(pieces))
    piece = int(pieces[row])
    return (row, piece) if piece > 0 else "every GPU is in use"


def _none_open(layout: Layout, workload: Workload) -> str:
    """Return why no node takes the workload now."""
    if not layout.open.any():
        return f"no node is ready{unhealthy(layout, workload)}"
    ready = layout.open & allowed(layout, workload)
    if not ready.any():
        return f"no node that it may use is ready{unhealthy(layout, workload)}"
    ready &= layout.has_storages(workload)
    if not ready.any():
        several = "s" if len(workload.storages) > 1 else ""
        return f"no node that it may use has the storage{several} {', '.join(workload.storages)} that it mounts"
    return _too_old(layout, ready)


def unhealthy(layout: Layout, workload: Workload) -> str:
    """Return which nodes that the workload may use take nothing because they are unhealthy, as the end of a phrase."""
    if not layout.unhealthy:
        return ""
    nodes = allowed(layout, workload)
    rows = [row for row in layout.unhealthy if nodes[row]]
    told = [f"{layout.nodes[row].name} is unhealthy ({layout.nodes[row].unhealthy})" for row in rows[:NAMED]]
    more = [f"and {len(rows) - NAMED} more"] if len(rows) > NAMED else []
    return "".join(f", {part}" for part in told + more)


def _too_old(layout: Layout, nodes: Flags) -> str:
    """Return which nodes do not know what is asked for, as their agents are of an earlier release."""
    rows = np.flatnonzero(nodes)
    named = ", ".join(layout.nodes[row].name for row in rows[:NAMED])
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    return f"{named}{more} cannot run what it asks for before the release of the API is installed there"


def _pieces(layout: Layout, free: Free, workload: Workload, usable: Flags) -> Ints:
    """Return what one container could have of these GPUs on each node: all in one island where it has to be."""
    together = _piece(layout, free, usable)
    within_island = workload.within_required and workload.within is TopologyLevel.ISLAND
    if not (within_island or layout.any_apart):
        return together
    in_one = np.array([_piece(layout, free, usable & (layout.island == island)) for island in layout.islands])
    return np.where(layout.apart | within_island, in_one.max(axis=0), together)


def _piece(layout: Layout, free: Free, usable: Flags) -> Ints:
    """Return the whole GPUs of each node that are free, and the most that is free of one in use."""
    whole = ((free.milli == MILLI) & usable).sum(axis=1) * MILLI
    in_use = usable & layout.fractions[:, None] & (free.milli < MILLI)
    return np.asarray(whole + np.where(in_use, free.milli, 0).max(axis=1, initial=0))


def held_by(workload: Workload) -> str:
    """Return how the shares of a workload have to be held, as the end of a phrase; nothing where any way will do."""
    kind = workload.enforcement
    return "" if kind is Enforcement.NONE else f" held by {kind}{' or better' if kind is not KINDS[0] else ''}"


def gpus(milli: int) -> str:
    """Return a share with its unit."""
    return f"{format_gpus(milli)} GPU{'s' if milli > MILLI else ''}"


def _too_many(workload: Workload, most: int) -> str:
    domains = {
        TopologyLevel.ISLAND: "one NVLink island",
        TopologyLevel.NODE: "one node",
        TopologyLevel.SWITCH: "one leaf switch",
    }
    where = domains.get(workload.within, "") if workload.within_required else ""
    place = where or "the nodes that it may use together"
    return (
        f"{workload.replicas} containers are asked for and {place} {'have' if not where else 'has'} room for {most}"
        f"; ask for at most {most}{', or allow a larger topology domain' if where else ''}"
    )


def _no_group(workload: Workload) -> str:
    groups = ", ".join(workload.groups or ())
    if groups:
        return f"no node lies in {groups}; ask the administrator to add one, or choose another resource group"
    return "no resource group is open to it; ask the administrator for one"


def _no_trait(layout: Layout, workload: Workload) -> str:
    """Return which trait no node has that the workload may use otherwise, and why not, or nothing."""
    rows = np.flatnonzero(allowed(layout, replace(workload, traits=())))
    told = [f"{layout.nodes[row].name}: {reason}" for row in rows[:NAMED] for reason in _lacks(layout, workload, row)]
    if not told:
        return ""
    more = f", and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    return f"no node that it may use has {' and '.join(workload.traits)} ({', '.join(told)}{more}); submit it without"


def _lacks(layout: Layout, workload: Workload, row: int) -> list[str]:
    lacks = dict(layout.nodes[row].lacks)
    return [lacks[trait] for trait in workload.traits if trait in lacks]


def _no_meeting(layout: Layout, workload: Workload, nodes: Flags) -> str:
    """Return that several containers have nowhere to meet, or nothing."""
    if workload.replicas == 1 or not layout.apart[nodes].all():
        return ""
    return "containers of one session cannot meet on the nodes that it may use, which are clusters; ask for one"


def _no_gpus(layout: Layout, workload: Workload, nodes: Flags) -> str:
    """Return what is missing of GPUs alone, or nothing."""
    if not workload.gpu_milli:
        return ""
    usable, slices = layout.usable(workload.gpu_models) & nodes[:, None], _slices(layout, workload) & nodes[:, None]
    if not (usable.any() or slices.any()):
        return _no_model(layout, workload, nodes)
    held = layout.holds(workload)
    if not ((usable | slices) & held).any():
        return _too_weak(layout, workload, usable | slices)
    usable, slices = usable & held, slices & held
    if workload.gpu_milli % MILLI and not layout.fractions[usable.any(axis=1)].any():
        return _no_shares(layout, workload, slices)
    within_island = workload.within_required and workload.within is TopologyLevel.ISLAND
    count = int((_by_island(layout, usable) if within_island else _together(layout, usable)).max())
    if workload.gpu_milli > count * MILLI:
        place = "island" if within_island else "machine" if layout.any_apart else "node"
        largest = f"the largest {place} that it may use has {gpus(count * MILLI)}"
        return f"one container asks for {gpus(workload.gpu_milli)} and {largest}; ask for at most that in a container"
    return ""


def _no_model(layout: Layout, workload: Workload, nodes: Flags) -> str:
    """Return what GPUs there are instead of those that the workload may have."""
    wanted = _models(workload)
    if workload.gpu_milli >= MILLI and (layout.slices & nodes[:, None]).any():
        return f"no node that it may use has {wanted} as a whole, only slices; ask for a part of a GPU"
    present = sorted(name for name, code in layout.models.items() if (layout.model[nodes] == code).any())
    has = f"they have {', '.join(present)}" if present else "they have none at all"
    return f"no node that it may use has {wanted}, {has}; choose another model or resource group"


def _too_weak(layout: Layout, workload: Workload, present: Flags) -> str:
    """Return that no GPU holds shares as well as the workload asks for, or beside each other."""
    best = KINDS[int(layout.kind[present].min())]
    if best.rank <= workload.enforcement.rank:
        kinds = " or ".join(sorted(ALONE))
        return (
            f"the nodes that it may use hold parts of GPUs by {kinds}, each alone in its container"
            "; ask for a part of one GPU, or for whole ones"
        )
    return (
        f"no GPU that it may use holds shares by {workload.enforcement} or better, the best is {best}"
        f"; ask for {best}, or choose another resource group"
    )


def _no_shares(layout: Layout, workload: Workload, slices: Flags) -> str:
    """Return why GPUs that cannot be shared have no place for a part of one, or nothing."""
    largest = int(layout.capacity[slices].max(initial=0))
    if not largest:
        return "no GPU that it may use can be shared; ask for whole GPUs"
    if workload.gpu_milli <= largest:
        return ""
    return f"the largest slice that it may use is {gpus(largest)}, and no GPU can be shared; ask for at most that"


def _slices(layout: Layout, workload: Workload) -> Flags:
    """Return the slices of its models that the workload may have, large enough or not."""
    if not layout.sliced or workload.gpu_milli >= MILLI:
        return np.zeros_like(layout.slices)
    return layout.slices & layout.of_models(workload.gpu_models)


def _no_amount(layout: Layout, workload: Workload, nodes: Flags) -> str:
    """Return what is missing of CPU or memory beside the GPUs, or nothing."""
    able = nodes
    if workload.gpu_milli:
        held = layout.holds(workload)
        devices = (layout.usable(workload.gpu_models) | _slices(layout, workload)) & held
        able = nodes & ((devices.sum(axis=1) * MILLI) >= workload.gpu_milli)
    lacks: list[str] = []
    most_cpu, most_memory = int(layout.empty.cpu[able].max()), int(layout.empty.memory[able].max())
    if most_cpu < workload.cpu_milli:
        lacks.append(f"{_cores(workload.cpu_milli)} and the largest has {_cores(most_cpu)}")
    if most_memory < workload.memory_mib:
        lacks.append(f"{workload.memory_mib} MiB of memory and the largest has {most_memory} MiB")
    if lacks:
        where = " of the nodes that have its GPUs" if workload.gpu_milli else ""
        return f"one container asks for {', and for '.join(lacks)}{where}; ask for less"
    return "no node has all that one container asks for at once (GPUs, CPU, memory); ask for less of one of them"


def _largest_bare(layout: Layout, free: Free, nodes: Flags) -> str:
    taking = nodes & (free.containers > 0)
    if not taking.any():
        return f"every node holds {MAX_CONTAINERS_PER_NODE} containers"
    row = int(np.argmax(np.where(taking, np.minimum(free.cpu, PLENTY), -PLENTY)))
    cpu, memory = int(free.cpu[row]), int(free.memory[row])
    parts = [f"{_cores(max(cpu, 0))}"] if cpu < PLENTY // 2 else []
    parts += [f"{max(memory, 0)} MiB of memory"] if memory < PLENTY // 2 else []
    return f"largest free piece is {' with '.join(parts) or 'without a limit'} on {layout.nodes[row].name}"


def _short_of(free: Free, workload: Workload, row: int) -> str:
    """Return what the node with the largest piece lacks beside GPUs, or nothing."""
    if bare_fitting(free.rows(np.array([row])), workload)[0] > 0:
        return ""
    if free.cpu[row] < workload.cpu_milli:
        return f"where {_cores(max(int(free.cpu[row]), 0))} of {_cores(workload.cpu_milli)} are free"
    return f"where {max(int(free.memory[row]), 0)} of {workload.memory_mib} MiB of memory are free"


def _by_island(layout: Layout, usable: Flags) -> Ints:
    """Return how many GPUs each island has; one row an island, one column a node."""
    return np.array([(usable & (layout.island == island)).sum(axis=1) for island in layout.islands])


def _together(layout: Layout, usable: Flags) -> Ints:
    """Return how many GPUs of each node one container may have together."""
    together: Ints = usable.sum(axis=1)
    return np.where(layout.apart, _by_island(layout, usable).max(axis=0), together) if layout.any_apart else together


def _models(workload: Workload) -> str:
    return f"a GPU of {' or '.join(workload.gpu_models)}" if workload.gpu_models else "a GPU"


def _cores(milli: int) -> str:
    return f"{milli / 1000:g} CPU{'s' if milli != 1000 else ''}"
