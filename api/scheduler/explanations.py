"""Explanations of a workload without a place: what is missing for ever, or what is free now."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from api.scheduler.capacity import PLENTY, Flags, Free, Ints, Layout, bare_fitting, few, is_mixed
from api.scheduler.closed_nodes import NAMED, with_closed
from api.scheduler.phrases import IN_USE, IN_USE_IN_PART, cpus, either, gpus, memory, some, together
from api.scheduler.placement import Search
from api.scheduler.signature import signature_of
from api.scheduler.snapshot import MAX_CONTAINERS_PER_NODE, Workload
from api.scheduler.topology import allowed
from common.gpu.kinds import ALONE, KINDS, Enforcement
from common.gpu.share import MAX_GPUS, MILLI, format_gpus
from common.sentence import Sentence, Several
from common.topology import TopologyLevel

Known = dict[tuple[object, ...], tuple[int, int] | str]
"""Largest pieces that were found: row and milli-GPU, or why there is none."""


def never_fits(layout: Layout, workload: Workload) -> str:
    """Return what the cluster lacks for the workload even when it is empty and all its nodes are open, and the hint.

    Nothing where it fits, and where no node is known yet.
    """
    if workload.gpu_milli > MAX_GPUS * MILLI:
        asked = format_gpus(workload.gpu_milli)
        return Sentence("a container holds at most {most} GPUs, not {asked}; ask for fewer", most=MAX_GPUS, asked=asked)
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
    text = Sentence("largest free piece is {piece} on {node}", piece=gpus(piece), node=layout.nodes[row].name)
    short = _short_of(free, workload, row) if piece >= workload.gpu_milli else ""
    return Sentence("{first}, {second}", first=text, second=short) if short else text


def _largest(layout: Layout, free: Free, workload: Workload) -> tuple[int, int] | str:
    """Return the row and the milli-GPU of the largest piece that is free, or why there is none."""
    nodes = layout.takes(workload) & allowed(layout, workload)
    if not nodes.any():
        return _none_open(layout, workload)
    if not workload.gpu_milli:
        return _largest_bare(layout, free, nodes)
    picked = few(nodes)
    rows, there, fractions = np.arange(len(nodes))[picked], free.rows(picked), layout.fractions[picked, None]
    held = layout.holds(workload)[picked] & nodes[picked, None]
    whole, slices = (of[picked] & held for of in (layout.usable(workload.gpu_models), _slices(layout, workload)))
    in_part = workload.gpu_milli % MILLI > 0 and bool((whole & ~fractions).any())
    usable = whole & fractions if in_part else whole
    if not (usable.any() or slices.any()):
        return _none_ready(layout, workload, rows[whole.any(axis=1)])
    single = np.where(slices, there.milli, 0).max(axis=1, initial=0)
    pieces = np.where(there.containers > 0, np.maximum(_pieces(layout, there, workload, usable, picked), single), 0)
    at = int(np.argmax(pieces))
    if (piece := int(pieces[at])) > 0:
        return int(rows[at]), piece
    return IN_USE_IN_PART if in_part else IN_USE


def _none_ready(layout: Layout, workload: Workload, rows: Ints) -> str:
    """Return why none of the GPUs on these rows is for the workload, in part where it asks for one."""
    if len(rows):
        return Sentence("GPUs of {nodes} are not shared", nodes=some([layout.nodes[row].name for row in rows], NAMED))
    wanted = held_by(_models(workload), workload)
    if layout.any_alone and is_mixed(workload):
        return Sentence("no node with {gpu} that can be had in part beside whole ones is ready", gpu=wanted)
    return Sentence("no node with {gpu} is ready", gpu=wanted)


def _none_open(layout: Layout, workload: Workload) -> str:
    """Return why no node takes the workload now."""
    if not layout.open.any():
        return with_closed(Sentence("no node is ready"), layout, workload)
    ready = layout.open & allowed(layout, workload)
    if not ready.any():
        return with_closed(Sentence("no node that it may use is ready"), layout, workload)
    ready &= layout.has_storages(workload)
    if not ready.any():
        return Sentence.counted(
            "no node that it may use has the storage {names} that it mounts",
            "no node that it may use has the storages {names} that it mounts",
            len(workload.storages),
            names=together(workload.storages),
        )
    return _too_old(layout, ready)


def _too_old(layout: Layout, nodes: Flags) -> str:
    """Return which nodes do not know what is asked for, as their agents are of an earlier release."""
    named = some([layout.nodes[row].name for row in np.flatnonzero(nodes)], NAMED)
    return Sentence("{nodes} cannot run what it asks for before the release of the API is installed there", nodes=named)


def _pieces(layout: Layout, free: Free, workload: Workload, usable: Flags, rows: Ints | slice) -> Ints:
    """Return what one container could have of these GPUs on each row: all in one island where it has to be."""
    together = _piece(free, usable, fractions := layout.fractions[rows, None])
    within_island = workload.within_required and workload.within is TopologyLevel.ISLAND
    if not (within_island or layout.any_apart):
        return together
    in_one = np.array([_piece(free, usable & (layout.island[rows] == island), fractions) for island in layout.islands])
    return np.where(layout.apart[rows] | within_island, in_one.max(axis=0), together)


def _piece(free: Free, usable: Flags, fractions: Flags) -> Ints:
    """Return the whole GPUs of each node that are free, and the most that is free of one in use."""
    whole = ((free.milli == MILLI) & usable).sum(axis=1) * MILLI
    in_use = usable & fractions & (free.milli < MILLI)
    return np.asarray(whole + np.where(in_use, free.milli, 0).max(axis=1, initial=0))


def held_by(phrase: str, workload: Workload) -> str:
    """Return a phrase with how the shares of a workload have to be held, where not any way will do."""
    kind = workload.enforcement
    if kind is Enforcement.NONE:
        return phrase
    if kind is KINDS[0]:
        return Sentence("{gpu} held by {kind}", gpu=phrase, kind=kind.value)
    return Sentence("{gpu} held by {kind} or better", gpu=phrase, kind=kind.value)


def _too_many(workload: Workload, most: int) -> str:
    domains = {
        TopologyLevel.ISLAND: Sentence("one NVLink island"),
        TopologyLevel.NODE: Sentence("one node"),
        TopologyLevel.SWITCH: Sentence("one leaf switch"),
    }
    where = domains.get(workload.within) if workload.within_required else None
    if where is None:
        return Sentence(
            "{count} containers are asked for and the nodes that it may use together have room for {most}"
            "; ask for at most {most}",
            count=workload.replicas,
            most=most,
        )
    return Sentence(
        "{count} containers are asked for and {place} has room for {most}"
        "; ask for at most {most}, or allow a larger topology domain",
        count=workload.replicas,
        place=where,
        most=most,
    )


def _no_group(workload: Workload) -> str:
    if workload.groups:
        return Sentence(
            "no node lies in {groups}; ask the administrator to add one, or choose another resource group",
            groups=either(workload.groups),
        )
    return Sentence("no resource group is open to it; ask the administrator for one")


def _no_trait(layout: Layout, workload: Workload) -> str:
    """Return which trait no node has that the workload may use otherwise, and why not, or nothing."""
    rows = np.flatnonzero(allowed(layout, replace(workload, traits=())))
    told = [
        Sentence("{node}: {why}", node=layout.nodes[row].name, why=reason)
        for row in rows[:NAMED]
        for reason in _lacks(layout, workload, row)
    ]
    if not told:
        return ""
    nodes: str = Sentence("{names}", names=Several(told))
    if len(rows) > NAMED:
        nodes = Sentence("{names}, and {count} more", names=nodes, count=len(rows) - NAMED)
    return Sentence(
        "no node that it may use has {traits} ({nodes}); submit it without",
        traits=together(workload.traits),
        nodes=nodes,
    )


def _lacks(layout: Layout, workload: Workload, row: int) -> list[str]:
    lacks = dict(layout.nodes[row].lacks)
    return [lacks[trait] for trait in workload.traits if trait in lacks]


def _no_meeting(layout: Layout, workload: Workload, nodes: Flags) -> str:
    """Return that several containers have nowhere to meet, or nothing."""
    if workload.replicas == 1 or not layout.apart[nodes].all():
        return ""
    return Sentence(
        "containers of one session cannot meet on the nodes that it may use, which are clusters; ask for one"
    )


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
    if workload.gpu_milli <= count * MILLI:
        return ""
    return _too_large(layout, gpus(workload.gpu_milli), gpus(count * MILLI), within_island=within_island)


def _too_large(layout: Layout, asked: str, most: str, *, within_island: bool) -> str:
    """Return that no node has as many GPUs as one container asks for, where they have to be."""
    if within_island:
        return Sentence(
            "one container asks for {asked} and the largest island that it may use has {most}"
            "; ask for at most that in a container",
            asked=asked,
            most=most,
        )
    if layout.any_apart:
        return Sentence(
            "one container asks for {asked} and the largest machine that it may use has {most}"
            "; ask for at most that in a container",
            asked=asked,
            most=most,
        )
    return Sentence(
        "one container asks for {asked} and the largest node that it may use has {most}"
        "; ask for at most that in a container",
        asked=asked,
        most=most,
    )


def _no_model(layout: Layout, workload: Workload, nodes: Flags) -> str:
    """Return what GPUs there are instead of those that the workload may have."""
    wanted = _models(workload)
    if workload.gpu_milli >= MILLI and (layout.slices & nodes[:, None]).any():
        return Sentence(
            "no node that it may use has {gpu} as a whole, only slices; ask for a part of a GPU", gpu=wanted
        )
    present = sorted(name for name, code in layout.models.items() if (layout.model[nodes] == code).any())
    if present:
        return Sentence(
            "no node that it may use has {gpu}, they have {models}; choose another model or resource group",
            gpu=wanted,
            models=together(present),
        )
    return Sentence(
        "no node that it may use has {gpu}, they have none at all; choose another model or resource group", gpu=wanted
    )


def _too_weak(layout: Layout, workload: Workload, present: Flags) -> str:
    """Return that no GPU holds shares as well as the workload asks for, or beside each other."""
    best = KINDS[int(layout.kind[present].min())]
    if best.rank <= workload.enforcement.rank:
        return Sentence(
            "the nodes that it may use hold parts of GPUs by {kinds}, each alone in its container"
            "; ask for a part of one GPU, or for whole ones",
            kinds=either([kind.value for kind in sorted(ALONE)]),
        )
    return Sentence(
        "no GPU that it may use holds shares by {kind} or better, the best is {best}"
        "; ask for {best}, or choose another resource group",
        kind=workload.enforcement.value,
        best=best.value,
    )


def _no_shares(layout: Layout, workload: Workload, slices: Flags) -> str:
    """Return why GPUs that cannot be shared have no place for a part of one, or nothing."""
    largest = int(layout.capacity[slices].max(initial=0))
    if not largest:
        return Sentence("no GPU that it may use can be shared; ask for whole GPUs")
    if workload.gpu_milli <= largest:
        return ""
    return Sentence(
        "the largest slice that it may use is {most}, and no GPU can be shared; ask for at most that",
        most=gpus(largest),
    )


def _slices(layout: Layout, workload: Workload) -> Flags:
    """Return the slices of its models that the workload may have, large enough or not."""
    may = workload.on_slices and workload.gpu_milli < MILLI
    return layout.slices & may & layout.of_models(workload.gpu_models) if layout.sliced else layout.slices


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
        lacks.append(
            Sentence("{asked} and the largest has {most}", asked=cpus(workload.cpu_milli), most=cpus(most_cpu))
        )
    if most_memory < workload.memory_mib:
        asked, most = memory(workload.memory_mib), f"{most_memory} MiB"
        lacks.append(Sentence("{asked} and the largest has {most}", asked=asked, most=most))
    if not lacks:
        return Sentence(
            "no node has all that one container asks for at once (GPUs, CPU, memory); ask for less of one of them"
        )
    found = lacks[0] if len(lacks) == 1 else Sentence("{first}, and for {second}", first=lacks[0], second=lacks[1])
    if workload.gpu_milli:
        return Sentence("one container asks for {lacks} of the nodes that have its GPUs; ask for less", lacks=found)
    return Sentence("one container asks for {lacks}; ask for less", lacks=found)


def _largest_bare(layout: Layout, free: Free, nodes: Flags) -> str:
    taking = nodes & (free.containers > 0)
    if not taking.any():
        return Sentence("every node holds {count} containers", count=MAX_CONTAINERS_PER_NODE)
    row = int(np.argmax(np.where(taking, np.minimum(free.cpu, PLENTY), -PLENTY)))
    cpu, mib = int(free.cpu[row]), int(free.memory[row])
    parts = [cpus(max(cpu, 0))] if cpu < PLENTY // 2 else []
    parts += [memory(max(mib, 0))] if mib < PLENTY // 2 else []
    node = layout.nodes[row].name
    if not parts:
        return Sentence("largest free piece is without a limit on {node}", node=node)
    piece = parts[0] if len(parts) == 1 else Sentence("{cpus} with {memory}", cpus=parts[0], memory=parts[1])
    return Sentence("largest free piece is {piece} on {node}", piece=piece, node=node)


def _short_of(free: Free, workload: Workload, row: int) -> str:
    """Return what the node with the largest piece lacks beside GPUs, or nothing."""
    if bare_fitting(free.rows(np.array([row])), workload)[0] > 0:
        return ""
    if free.cpu[row] < workload.cpu_milli:
        left = cpus(max(int(free.cpu[row]), 0))
        return Sentence("which has {left} of {asked} free", left=left, asked=cpus(workload.cpu_milli))
    mib = max(int(free.memory[row]), 0)
    return Sentence("which has {left} of {asked} free", left=str(mib), asked=memory(workload.memory_mib))


def _by_island(layout: Layout, usable: Flags) -> Ints:
    """Return how many GPUs each island has; one row an island, one column a node."""
    return np.array([(usable & (layout.island == island)).sum(axis=1) for island in layout.islands])


def _together(layout: Layout, usable: Flags) -> Ints:
    """Return how many GPUs of each node one container may have together."""
    together: Ints = usable.sum(axis=1)
    return np.where(layout.apart, _by_island(layout, usable).max(axis=0), together) if layout.any_apart else together


def _models(workload: Workload) -> str:
    if not workload.gpu_models:
        return Sentence("a GPU")
    return Sentence("a GPU of {models}", models=either(workload.gpu_models))
