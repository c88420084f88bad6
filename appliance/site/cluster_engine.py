"""The cluster engine of a site, which is Slurm: its nodes, what its role is told of them, and their rules. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from appliance.site.model import Node, NodeRole, Site
from appliance.site.slurm import ACCOUNTING_PORT, CONTROLLER_PORT, NODE_PORT, STATE_FOLDER, Engine, SlurmSettings
from common.places import Path

PORTS = {CONTROLLER_PORT: "slurmctld.", NODE_PORT: "slurmd.", ACCOUNTING_PORT: "slurmdbd."}
"""Ports of Slurm, and how the names of the units begin that listen on them."""

Fault = tuple[Path, str, str]
"""What a rule finds: the path of the value, what is wrong with it, and the hint."""


def findings(site: Site) -> Iterator[Fault]:
    """Yield what is wrong with the engine of a site: where, what, and the hint."""
    if site.engine is Engine.DIRECT:
        yield from _of_direct(site)
        return
    releases: dict[str, str] = {}
    for index, node in enumerate(site.nodes):
        path: Path = ("nodes", index)
        if node.slurm and not _runs_jobs(node):
            yield (*path, "slurm"), f"{node.name} runs no jobs", "remove slurm, or add the role worker or slurm"
        if not is_member(site, node):
            continue
        if node.kubernetes:
            yield (*path, "kubernetes"), "Slurm lends no places of a cluster", "leave the cluster to a site of its own"
        first = releases.setdefault(node.release, node.name)
        if len(releases) > 1 and first == node.name:
            other, of_other = next(iter(releases.items()))
            reason = f"{node.name} runs {node.release} and {of_other} {other}, whose Slurms do not speak to each other"
            yield (*path, "release"), reason, "give all nodes of Slurm one release of Debian"
        if _runs_jobs(node):
            yield from _of_node(node, path)
    yield from _of_backup(site)


def variables(site: Site) -> dict[str, Any]:
    """Return what the role of Slurm is told of a site."""
    controllers = [site.master, *(node for node in site.nodes if node.name == site.slurm.backup_controller)]
    return {
        "controllers": [{"name": node.name, "address": str(node.address)} for node in controllers],
        "accounting": str(site.master.address),
        "accounting_days": site.slurm.accounting_days,
        "state_folder": site.slurm.state_folder,
        "state_folders": _upwards(site.slurm.state_folder),
        "user_id": site.slurm.user_id,
        "core_memory_mib": _core_memory_mib(site),
        "nodes": [_described(node) for node in site.nodes if _runs_jobs(node)],
    }


def members(site: Site) -> list[str]:
    """Return the nodes of Slurm: its controllers, and those that run jobs."""
    return [node.name for node in site.nodes if is_member(site, node)]


def is_member(site: Site, node: Node) -> bool:
    """Return whether a node is one of Slurm's."""
    return site.engine is Engine.SLURM and (
        _runs_jobs(node) or node.name in (site.master.name, site.slurm.backup_controller)
    )


def ports(site: Site, node: Node) -> dict[int, str]:
    """Return the ports that Slurm has on a node, and how the names of the units begin that listen on them."""
    held = PORTS if is_member(site, node) else {}
    return {port: unit for port, unit in held.items() if port != ACCOUNTING_PORT or node is site.master}


def _upwards(folder: str) -> list[str]:
    """Return a folder and those that it lies in, the root last."""
    path = PurePosixPath(folder)
    return [str(each) for each in (path, *path.parents)]


def _core_memory_mib(site: Site) -> int:
    """Return the memory for each core of the people's node that has the least; 0 where they have no node."""
    shared = (node.slurm for node in site.with_role(NodeRole.SLURM) if node.slurm)
    return min((each.memory_mib // each.cores for each in shared), default=0)


def _described(node: Node) -> dict[str, Any]:
    assert node.slurm is not None  # noqa: S101 - the rules of the site file
    return {
        "name": node.name,
        "address": str(node.address),
        "cores": node.slurm.cores,
        "memory_mib": node.slurm.memory_mib,
        "fgpu": 1000 * (_gpus(node) - node.slurm.gpus) if NodeRole.WORKER in node.roles else 0,
        "first_gpu": _gpus(node) - node.slurm.gpus,
        "gpus": node.slurm.gpus,
        "sessions": NodeRole.WORKER in node.roles,
        "people": NodeRole.SLURM in node.roles,
    }


def _gpus(node: Node) -> int:
    described = node.simulated_gpus or node.gpus
    return described.count if described else node.slurm.gpus if node.slurm else 0


def _runs_jobs(node: Node) -> bool:
    return NodeRole.WORKER in node.roles or NodeRole.SLURM in node.roles


def _of_direct(site: Site) -> Iterator[Fault]:
    for index, node in enumerate(site.nodes):
        if node.slurm or NodeRole.SLURM in node.roles:
            yield ("nodes", index), f"{node.name} is a node of Slurm", "write `engine: slurm`, or remove that"
    if site.slurm != SlurmSettings():
        yield ("slurm",), "the site has no Slurm", "write `engine: slurm`, or remove slurm"


def _of_node(node: Node, path: Path) -> Iterator[Fault]:
    if node.slurm is None:
        hint = "add `slurm: {cores: …, memory_mib: …}`, as `nproc` and `free -m` say on it"
        yield path, f"nobody tells Slurm what {node.name} has", hint
        return
    if NodeRole.WORKER in node.roles and not (node.gpus or node.simulated_gpus):
        yield path, f"nobody tells Slurm how many GPUs {node.name} has", "add `gpus: {count: …}`; 0 for none"
        return
    if node.slurm.gpus and NodeRole.SLURM not in node.roles:
        reason = f"{node.name} runs sessions alone, and none of its GPUs can belong to others"
        yield (*path, "slurm", "gpus"), reason, "add the role slurm, or remove gpus"
    if NodeRole.WORKER in node.roles and node.slurm.gpus > _gpus(node):
        yield (*path, "slurm", "gpus"), f"{node.name} has {_gpus(node)} GPUs", "name no more than it has"


def _of_backup(site: Site) -> Iterator[Fault]:
    backup = site.slurm.backup_controller
    if backup is None:
        return
    if backup not in {node.name for node in site.nodes if node is not site.master}:
        yield ("slurm", "backup_controller"), f"{backup} is no other node of the site", "name one beside the master"
    if site.slurm.state_folder == STATE_FOLDER:
        reason = "a controller that takes over needs the jobs of the one before"
        yield ("slurm",), reason, "write `state_folder`: a folder of a storage that both have"
