"""Containers of sessions as Docker is to make them. Pure: nothing here talks to Docker.

What Docker then tells of them is read in `inspections.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, HostConfig, LogConfig, Mount, Ulimit

from appliance.agent import admission, environment
from appliance.agent.docker import cores, gang_network
from appliance.agent.docker.cores import NO_CORES, CoreGrant
from appliance.agent.labels import (
    LABEL_BOOT,
    LABEL_CORES,
    LABEL_CPU_MILLI,
    LABEL_DIGEST,
    LABEL_DISK_MIB,
    LABEL_ENFORCEMENT,
    LABEL_GPUS,
    LABEL_ID,
    LABEL_LEASE,
    LABEL_NETWORK,
    LABEL_PORTS,
    LABEL_PROJECT,
    LABEL_SESSION,
    LABEL_SESSION_NAME,
    LABEL_USER,
    digest_of,
    name_of,
)
from appliance.agent.sandbox import oci_runtime
from appliance.agent.sandbox.confinement import Confinement
from appliance.gpu.devices import Needs
from common.gpu.kinds import Enforcement
from common.protocol import ContainerSpec, ContainerState, GpuDevice

OOM_SCORE = 500
"""Where the node runs out of memory, the kernel ends what a session runs before it ends what the node runs."""
OLDEST_API = "1.41"
"""Docker's API of Engine 20.10, the oldest that we support: all that is asked for stands in it."""


@dataclass(frozen=True)
class ContainerLimits:
    """Limits of every container: processes, bytes that it may lock in memory (-1: without limit), and its log."""

    pids: int = 4096
    memlock: int = -1
    log_mib: int = 10
    log_files: int = 3


CONTAINER_LIMITS = ContainerLimits()
NO_NEEDS = Needs()


def check(spec: ContainerSpec, devices: Mapping[str, GpuDevice], others: Iterable[ContainerState]) -> None:
    """Refuse a spec that this machine must not run beside `others`, as `admission.check` does; raises PenstockError."""
    if spec.network:
        gang_network.check(spec.network)
    admission.check(spec, devices, others)


def creation(
    spec: ContainerSpec,
    granted: CoreGrant = NO_CORES,
    sources: Sequence[Path] | None = None,
    limits: ContainerLimits = CONTAINER_LIMITS,
    *,
    needs: Needs = NO_NEEDS,
    rdma: Needs = NO_NEEDS,
    kind: Enforcement | None = None,
    confinement: Confinement | None = None,
    shown: Mapping[str, Path] | None = None,
    hosts: Mapping[str, IPv4Address] | None = None,
    servers: Sequence[str] = (),
    boot: str = "",
    cgroup: str = "",
) -> dict[str, Any]:
    """Return the arguments with which docker's `create_container` makes the container of `spec`.

    `sources` are the folders of its mounts without links in them, where they have been made already. `needs` is what
    its GPU shares need, which `kind` holds, `rdma` what its HCAs do, whose environment the user's stands above;
    `confinement` is what its sandbox's filter has to know, `shown` are files that it sees in place of its own, and
    `hosts` names that it knows. `servers` are its DNS servers: without any Docker would take some of the internet's. It
    is started in this `boot` of the machine, or never, below the cgroup `cgroup` where there is one.
    """
    members = spec.network.hosts if spec.network else {}
    host = HostConfig(
        version=OLDEST_API,
        init=True,
        runtime=oci_runtime.NAME if confinement else None,
        security_opt=["no-new-privileges"],
        # a session must not answer for its neighbours on the node's bridge
        cap_drop=["NET_RAW"],
        cgroup_parent=cgroup or None,
        shm_size=spec.shm_mib << 20,
        cpuset_cpus=cores.write(granted.cores) or None,
        # whole cores need no quota: their set is the limit
        nano_cpus=spec.cpu_milli * 1_000_000 if spec.cpu_milli % environment.MILLI else None,
        mem_limit=spec.memory_mib << 20 or None,
        memswap_limit=spec.memory_mib << 20 or None,
        oom_score_adj=OOM_SCORE,
        pids_limit=limits.pids,
        # what talks to GPUs and InfiniBand pins its buffers
        ulimits=[Ulimit(name="memlock", soft=limits.memlock, hard=limits.memlock)],
        log_config=LogConfig(type="json-file", config=_log_options(limits)),
        mounts=[
            Mount(mount.target, str(source), type="bind", read_only=mount.read_only)
            for mount, source in zip(spec.mounts, sources or [Path(mount.source) for mount in spec.mounts], strict=True)
        ]
        + [Mount(mount.target, mount.source, type="bind", read_only=mount.read_only) for mount in needs.mounts]
        + [Mount(target, str(file), type="bind", read_only=True) for target, file in (shown or {}).items()],
        devices=[f"{node}:{node}:rwm" for node in (*needs.devices, *rdma.devices)] or None,
        device_requests=[DeviceRequest(device_ids=list(needs.nvidia), capabilities=[["gpu"]])]
        if needs.nvidia
        else None,
        dns=list(servers) or None,
        # these come first in the file: its own name is its address on the session's network, too
        extra_hosts={name: str(address) for name, address in {**(hosts or {}), **members}.items()} or None,
    )
    return {
        "image": spec.image,
        "name": name_of(spec.id),
        "hostname": spec.network.name if spec.network else spec.session_name,
        # an entrypoint of our own also drops the image's command, which is what `command` means
        "entrypoint": spec.command,
        "command": spec.args or None,
        "environment": _environment(spec, needs, rdma, confinement),
        "labels": _labels(spec, granted, kind, boot),
        "host_config": host,
    }


def _labels(spec: ContainerSpec, granted: CoreGrant, kind: Enforcement | None, boot: str) -> dict[str, str]:
    """Return every label of ours: one that is left out would be the image's, if that has it."""
    return {
        LABEL_ID: spec.id,
        LABEL_SESSION: spec.session_id,
        LABEL_SESSION_NAME: spec.session_name,
        LABEL_PROJECT: spec.project,
        LABEL_USER: spec.user,
        LABEL_GPUS: json.dumps([asdict(share) for share in spec.gpus]),
        LABEL_CORES: cores.write(granted.cores),
        LABEL_CPU_MILLI: str(granted.milli),
        LABEL_DISK_MIB: str(spec.disk_mib),
        LABEL_ENFORCEMENT: str(kind) if kind else "",
        LABEL_NETWORK: spec.network.written() if spec.network else "",
        LABEL_PORTS: json.dumps(spec.ports),
        LABEL_DIGEST: digest_of(spec),
        LABEL_BOOT: boot,
        LABEL_LEASE: spec.lease,
    }


def _environment(spec: ContainerSpec, needs: Needs, rdma: Needs, confinement: Confinement | None) -> dict[str, str]:
    # images for NVIDIA GPUs ask for all of them by default, and a user may too; a session gets what it was given
    ours = {**environment.identity(spec), environment.NVIDIA_VISIBLE_DEVICES: "void"}
    # the runtime reads it, and takes it out again: nobody else may say what the sandbox is
    confined = {oci_runtime.VARIABLE: confinement.model_dump_json()} if confinement else {}
    meets = {**(gang_network.environment() if spec.network else {}), **rdma.environment}
    return {**environment.threads(spec.cpu_milli), **meets, **spec.environment, **ours, **confined, **needs.environment}


def _log_options(limits: ContainerLimits) -> dict[str, str]:
    return {"max-size": f"{limits.log_mib}m", "max-file": str(limits.log_files)}
