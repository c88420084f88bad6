"""Needs of nodes: what hardware and kernel must be or should be, judged by what the role `preflight` saw. Pure.

What makes sessions impossible fails; what makes them slow, or takes an option from them, warns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.site import sizing
from appliance.site.model import Node, NodeRole, Site
from common.checks import Check, CheckState
from common.rdma import INFINIBAND, MIN_GBPS

Machine = Mapping[str, Any]
"""What `roles/preflight/library/node_machine.py` says of a node."""

OLDEST_DRIVER, OLDEST_FOR_PARTS = (430, 40), (470,)
"""The oldest driver of NVIDIA's that sessions work with, and that parts of GPUs do."""
OLDEST_KERNEL = (5, 3)
"""The oldest one that the agent holds sandboxes and their processes on (`pidfd_open`, notifications of seccomp)."""
COMMAND_MBPS, TRAINING_MBPS = 1_000, 10_000
"""What a network carries at least: from master to workers, and between workers."""
ON_DISK = 0.9
"""A file system has somewhat less than the disk that it is on."""


def judge(site: Site, node: Node, machine: Machine) -> Iterator[Check]:
    """Yield what a node should have, in the order in which it is told."""
    is_worker = NodeRole.WORKER in node.roles and node.kubernetes is None
    if is_worker or NodeRole.STORAGE in node.roles:
        yield _disk(site, machine)
    if is_worker and node.docker_root:
        yield _mount(node.docker_root, machine)
    yield _size(node, machine)
    yield from _network(site, node, machine)
    yield _selinux(machine)
    if is_worker:
        yield _apparmor(machine)
        yield _kernel(machine)
        yield _capabilities(machine)
        if not node.simulated_gpus:
            yield _driver(node, machine)
            yield from _gpus(node, machine)
    if node.ib_address is not None:
        yield _infiniband(machine)


def _check(identity: str, name: str, state: CheckState, evidence: str, hint: str) -> Check:
    return Check(identity, name, state, evidence, "" if state is CheckState.OK else hint)


def _disk(site: Site, machine: Machine) -> Check:
    has, needed = machine["disk_bytes"] / 10**9, site.deploy.disk_gb
    enough = has >= needed * ON_DISK
    # that of the machine which the lab runs on is nobody's data disk
    state = CheckState.OK if enough else CheckState.WARN if machine["container"] else CheckState.FAIL
    folder = machine["disk_folder"]
    said = f"the file system of {folder} has {has:.0f} GB, of a disk of {needed} GB at least"
    hint = (
        f"give {folder} a larger disk, name a folder on one as `docker_root` of a worker, or write what is enough here"
        " as `disk_gb` of `deploy` in the site file"
    )
    return _check("disk.size", "disk is large enough", state, said, hint)


def _mount(folder: str, machine: Machine) -> Check:
    """Judge whether Docker can wait for its disk: beside it, it would begin anew on the one below."""
    point = machine["disk_by_hand"]
    state = CheckState.WARN if point else CheckState.OK
    said = f"what is mounted at {point} was mounted by hand" if point else f"{folder} is there after a boot"
    hint = f"write {point} into /etc/fstab and run `systemctl daemon-reload`: Docker waits for what systemd mounts"
    return _check("disk.mount", "Docker's disk comes back after a boot", state, said, hint)


def _size(node: Node, machine: Machine) -> Check:
    needed = sizing.needed(node.roles)
    short = sizing.lacking(needed, machine["cores"], machine["memory_mib"])
    said = f"{machine['cores']} cores, {machine['memory_mib'] / 1024:.1f} GiB memory"
    state = CheckState.WARN if short else CheckState.OK
    hint = "`penstock doctor sizing` tells what each service needs"
    return _check("size", "machine is large enough", state, short or said, hint)


def _network(site: Site, node: Node, machine: Machine) -> Iterator[Check]:
    """Judge the fastest interface that is up; on some, as those of virtual machines, the kernel knows no speed."""
    up = {each["name"]: each["mbps"] for each in machine["interfaces"] if each["up"]}
    known = {name: mbps for name, mbps in up.items() if mbps}
    said = ", ".join(f"{name} {mbps} Mbit/s" for name, mbps in known.items()) or "no interface tells its speed"
    most = max(known.values(), default=None)
    workers = site.with_role(NodeRole.WORKER)
    rows = [("network.commands", "network carries commands", COMMAND_MBPS)] if len(site.nodes) > 2 else []
    if node in workers and len(workers) > 1:
        rows.append(("network.training", "network carries training on several nodes", TRAINING_MBPS))
    for identity, name, least in rows:
        slow = most is not None and most < least
        hint = f"use interfaces and a switch of {least // 1000} Gbit/s"
        evidence = f"{said}, of {least} at least" if slow else said
        yield _check(identity, name, CheckState.WARN if slow else CheckState.OK, evidence, hint)


def _kernel(machine: Machine) -> Check:
    runs = machine["kernel"]
    old = _version(runs) < OLDEST_KERNEL
    said = f"{runs} runs, of 5.3 at least" if old else f"{runs} runs"
    state = CheckState.FAIL if old else CheckState.OK
    return _check("kernel", "kernel is new enough", state, said, "boot the kernel of the node's release")


def _capabilities(machine: Machine) -> Check:
    missing = machine["missing_capabilities"]
    said = f"root may not have {', '.join(missing)}" if missing else "root may have them"
    state = CheckState.FAIL if missing else CheckState.OK
    hint = "run the node where nothing is taken from root, as a machine or a privileged container"
    return _check("capabilities", "agent gets the rights that it needs", state, said, hint)


def _selinux(machine: Machine) -> Check:
    """Judge a policy that is no part of the releases that nodes run, and that no machine has been judged with."""
    mode = machine["selinux"]
    state = CheckState.WARN if mode == "enforcing" else CheckState.OK
    said = f"SELinux is {mode}" if mode else "SELinux is off"
    hint = "write SELINUX=permissive to /etc/selinux/config and boot, or look at `ausearch -m avc` for what it denies"
    return _check("selinux", "SELinux denies services nothing", state, said, hint)


def _apparmor(machine: Machine) -> Check:
    """Judge whether Docker can load the profile of its containers: without the parser it goes on without, silently."""
    lacks = machine["apparmor"] and not machine["apparmor_parser"] and not machine["container"]
    said = "AppArmor is on" if machine["apparmor"] else "AppArmor is off, and seccomp alone limits sessions' calls"
    said = f"{said}, and without apparmor_parser Docker gives containers no profile" if lacks else said
    state = CheckState.WARN if lacks else CheckState.OK
    hint = "install the package `apparmor` of the node's release before the deploy"
    return _check("apparmor", "AppArmor limits sessions, where the kernel has it", state, said, hint)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _driver(node: Node, machine: Machine) -> Check:
    name, loaded = "GPU driver is new enough", machine["driver"]
    version = _version(loaded)
    installs = node.driver is not None and bool(node.driver.branch) and node.driver.source != "preinstalled"
    if installs:
        said = f"the deploy installs branch {node.driver.branch if node.driver else ''}"
        return Check("driver", name, CheckState.OK, f"{loaded} is loaded, and {said}" if loaded else said)
    if not machine["gpus"]:
        return Check("driver", name, CheckState.OK, "no GPU of NVIDIA on the PCI bus: a node for work without GPUs")
    hint = "install a newer one, or let the site file have the `driver` that a deploy installs"
    if not loaded:
        said = f"{machine['gpus']} GPUs of NVIDIA on the PCI bus, and no driver is loaded"
        return Check("driver", name, CheckState.WARN, said, hint)
    if version < OLDEST_DRIVER:
        return Check("driver", name, CheckState.FAIL, f"{loaded} is loaded, of 430.40 at least", hint)
    if version < OLDEST_FOR_PARTS:
        return Check("driver", name, CheckState.WARN, f"{loaded} is loaded; parts of GPUs need 470 at least", hint)
    return Check("driver", name, CheckState.OK, f"{loaded} is loaded")


def _gpus(node: Node, machine: Machine) -> Iterator[Check]:
    if node.gpus is None:
        return
    said = f"{machine['gpus']} of NVIDIA on the PCI bus, and {node.gpus.count} in the site file"
    # accelerators of others are on no list of NVIDIA's
    state = CheckState.WARN if machine["gpus"] < node.gpus.count else CheckState.OK
    hint = "look at `lspci -d 10de:` and the seat of the cards, or correct `gpus` of the node in the site file"
    yield _check("gpus", "GPUs are on the bus", state, said, hint)


def _infiniband(machine: Machine) -> Check:
    ports = machine["hcas"]
    roce = {each["name"] for each in ports if each["link"] not in ("", INFINIBAND)}
    note = " (RoCE, which sessions do not use)"
    named = (f"{each['name']} {each['gbps']:g} Gb/s{note if each['name'] in roce else ''}" for each in ports)
    said = ", ".join(named) or "no adapter of InfiniBand"
    fast = any(each["gbps"] >= MIN_GBPS for each in ports if each["name"] not in roce)
    hint = f"RDMA takes a port of {MIN_GBPS} Gb/s or more: look at the adapter's driver, cable and subnet manager"
    state = CheckState.OK if fast else CheckState.WARN
    return _check("infiniband", "InfiniBand is fast enough for RDMA", state, said, hint)
