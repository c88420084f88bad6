"""How a session's container looks to Docker, and back. Pure: nothing here talks to Docker.

Labels are the only memory of the agent: whatever it must know after a restart stands in them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from docker.types import DeviceRequest, HostConfig, LogConfig, Mount, Ulimit
from pydantic import TypeAdapter

from appliance.agent import cores, runtime
from appliance.agent.cores import NO_CORES, CoreGrant
from appliance.agent.docker import folders, gang
from appliance.agent.sandbox.confinement import Confinement
from appliance.gpu.devices import Needs
from common.errors import ConflictError, InputError, Problem
from common.gpu.kinds import Enforcement
from common.gpu.share import MILLI, format_gpus
from common.protocol import (
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    GangNetwork,
    GpuDevice,
    GpuGrant,
    belongs_to_system,
)

API_VERSION = "1.41"
"""Docker's API of Engine 20.10, the oldest that we support."""
MAX_CONTAINERS = 100

LABEL_ID = "io.penstock.id"
LABEL_SESSION = "io.penstock.session"
LABEL_SESSION_NAME = "io.penstock.session-name"
LABEL_PROJECT = "io.penstock.project"
LABEL_USER = "io.penstock.user"
LABEL_GPUS = "io.penstock.gpus"
LABEL_ENFORCEMENT = "io.penstock.enforcement"
LABEL_CORES = "io.penstock.cores"
LABEL_CPU_MILLI = "io.penstock.cpu-milli"
LABEL_PORTS = "io.penstock.ports"
LABEL_NETWORK = "io.penstock.network"
LABEL_DIGEST = "io.penstock.spec"

FINAL = (ContainerStatus.EXITED, ContainerStatus.FAILED)
_NEVER = "0001-01-01T00:00:00Z"
_STATUS = {
    "created": ContainerStatus.CREATING,
    "running": ContainerStatus.RUNNING,
    "paused": ContainerStatus.RUNNING,
    "restarting": ContainerStatus.RUNNING,
    "removing": ContainerStatus.EXITED,
    "exited": ContainerStatus.EXITED,
    "dead": ContainerStatus.EXITED,
}
_EXIT_REASONS = {
    126: "exit code 126: the command cannot be executed; see the log",
    127: "exit code 127: the command is not in the image; see the log",
}
_grants = TypeAdapter(list[GpuGrant])
_ports = TypeAdapter(list[int])


@dataclass(frozen=True)
class Limits:
    """Limits of every container: processes and threads, and bytes that it may lock in memory (-1: without limit)."""

    pids: int = 4096
    memlock: int = -1


LIMITS = Limits()
NO_NEEDS = Needs()


def name_of(identity: str) -> str:
    """Return the name of the Docker container of one id."""
    return f"penstock-{identity}"


def digest_of(spec: ContainerSpec) -> str:
    """Return a hash of a spec; fields at their default do not count, so that new ones may be added."""
    return hashlib.sha256(spec.model_dump_json(exclude_defaults=True).encode()).hexdigest()


def check(
    spec: ContainerSpec,
    devices: Mapping[str, GpuDevice],
    others: Iterable[ContainerState],
) -> None:
    """Refuse a spec that this node must not run beside `others`, the containers that it has already.

    Raises InputError for a spec that can never run here, ConflictError for one that has no room now.
    """
    problems = [*_unknown_gpus(spec, devices)]
    if problems:
        raise InputError.of(problems)
    if spec.network:
        gang.check(spec.network)
    live = [state for state in others if state.status not in FINAL]
    if len(live) >= MAX_CONTAINERS:
        raise ConflictError(
            f"the node runs {len(live)} containers, and {MAX_CONTAINERS} are the most that a node may run",
            where="id",
            hint="use another node, or end a session on this one",
        )
    check_room(spec.gpus, devices, live)


def check_room(grants: Sequence[GpuGrant], devices: Mapping[str, GpuDevice], others: Iterable[ContainerState]) -> None:
    """Refuse shares for which GPUs have no room beside those of the containers `others`; raises ConflictError."""
    live = [state for state in others if state.status not in FINAL]
    for position, grant in enumerate(grants):
        used = sum(held.milli for state in live for held in state.gpus if held.uuid == grant.uuid)
        # a MIG device goes to one container, whatever its share says
        if used + (MILLI if devices[grant.uuid].parent else grant.milli) > MILLI:
            raise ConflictError(
                f"{format_gpus(used)} of GPU {grant.uuid} is in use, so {format_gpus(grant.milli)} more does not fit",
                where=f"gpus.{position}",
                hint="use another GPU, or end a session on this one",
            )


def check_runs(state: ContainerState, pid: int | None = None) -> None:
    """Refuse what only a running container can do; `pid` is that of its first process. Raises ConflictError."""
    if state.status is not ContainerStatus.RUNNING or pid == 0:
        raise ConflictError(f"container {state.id} does not run", where="id", hint="change the shares of one that runs")


def check_mounts(spec: ContainerSpec, roots: Sequence[Path]) -> None:
    """Refuse mounts that lie outside of the roots, or hide the system; raises InputError.

    It looks at the shared storage, so it blocks as long as that does not answer.
    """
    problems = [*_forbidden_mounts(spec, roots)]
    if problems:
        raise InputError.of(problems)


def creation(
    spec: ContainerSpec,
    granted: CoreGrant = NO_CORES,
    sources: Sequence[Path] | None = None,
    limits: Limits = LIMITS,
    *,
    needs: Needs = NO_NEEDS,
    kind: Enforcement | None = None,
    confinement: Confinement | None = None,
    shown: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """Return the arguments with which docker's `create_container` makes the container of `spec`.

    `sources` are the folders of its mounts without links in them, where they have been made already. `needs` is what
    its GPU shares need, which `kind` holds; `confinement` is what its sandbox's filter has to know,
    `shown` are files that it sees in place of the kernel's.
    """
    host = HostConfig(
        version=API_VERSION,
        init=True,
        runtime=runtime.NAME if confinement else None,
        security_opt=["no-new-privileges"],
        # a session must not answer for its neighbours on the node's bridge
        cap_drop=["NET_RAW"],
        shm_size=spec.shm_mib << 20,
        cpuset_cpus=cores.write(granted.cores) or None,
        # whole cores need no quota: their set is the limit
        nano_cpus=spec.cpu_milli * 1_000_000 if spec.cpu_milli % cores.MILLI else None,
        mem_limit=spec.memory_mib << 20 or None,
        memswap_limit=spec.memory_mib << 20 or None,
        pids_limit=limits.pids,
        # what talks to GPUs and InfiniBand pins its buffers
        ulimits=[Ulimit(name="memlock", soft=limits.memlock, hard=limits.memlock)],
        log_config=LogConfig(type="json-file", config={"max-size": "10m", "max-file": "3"}),
        mounts=[
            Mount(mount.target, str(source), type="bind", read_only=mount.read_only)
            for mount, source in zip(spec.mounts, sources or [Path(mount.source) for mount in spec.mounts], strict=True)
        ]
        + [Mount(mount.target, mount.source, type="bind", read_only=mount.read_only) for mount in needs.mounts]
        + [Mount(target, str(file), type="bind", read_only=True) for target, file in (shown or {}).items()],
        devices=[f"{node}:{node}:rwm" for node in needs.devices] or None,
        device_requests=[DeviceRequest(device_ids=list(needs.nvidia), capabilities=[["gpu"]])]
        if needs.nvidia
        else None,
        # these come first in the file: its own name is its address on the session's network, too
        extra_hosts={name: str(address) for name, address in spec.network.hosts.items()} if spec.network else None,
    )
    return {
        "image": spec.image,
        "name": name_of(spec.id),
        "hostname": spec.network.name if spec.network else spec.session_name,
        # an entrypoint of our own also drops the image's command, which is what `command` means
        "entrypoint": spec.command,
        "command": spec.args or None,
        "environment": _environment(spec, needs, confinement),
        "labels": _labels(spec, granted, kind),
        "host_config": host,
    }


def state_of(inspection: Mapping[str, Any]) -> ContainerState:
    """Return the state of a container of ours from Docker's answer to `inspect`."""
    labels, state = inspection["Config"]["Labels"], inspection["State"]
    status, error = _STATUS[state["Status"]], state["Error"]
    if status is ContainerStatus.CREATING and error:
        status = ContainerStatus.FAILED
    if status is ContainerStatus.EXITED and not error:
        error = _EXIT_REASONS.get(state["ExitCode"], "")
    if state.get("OOMKilled"):
        error = f"out of memory: the limit is {inspection['HostConfig']['Memory'] >> 20} MiB"
    return ContainerState(
        id=labels[LABEL_ID],
        session_id=labels[LABEL_SESSION],
        status=status,
        exit_code=state["ExitCode"] if status in FINAL else None,
        error=error,
        started_at=_time(state["StartedAt"]),
        finished_at=_time(state["FinishedAt"]),
        gpus=(grants := _grants.validate_json(labels[LABEL_GPUS])),
        enforcement=kind_of(inspection) if grants else None,
    )


def digest_label(inspection: Mapping[str, Any]) -> str:
    """Return the digest of the spec that a container was made from; empty where it is not one of ours."""
    digest: str = (inspection["Config"]["Labels"] or {}).get(LABEL_DIGEST, "")
    return digest


def kind_of(inspection: Mapping[str, Any]) -> Enforcement:
    """Return how the GPU shares of a container of ours are held; those from before there were kinds are not."""
    return Enforcement(inspection["Config"]["Labels"].get(LABEL_ENFORCEMENT, Enforcement.NONE))


def process_of(inspection: Mapping[str, Any]) -> tuple[str, int]:
    """Return Docker's id of a container, and the id of its first process; 0 where it does not run."""
    return str(inspection["Id"]), int(inspection["State"]["Pid"])


def cores_of(inspection: Mapping[str, Any]) -> CoreGrant:
    """Return the cores that a container of ours was given."""
    labels = inspection["Config"]["Labels"]
    return CoreGrant(cores.read(labels.get(LABEL_CORES, "")), int(labels.get(LABEL_CPU_MILLI, 0)))


def ports_of(inspection: Mapping[str, Any]) -> list[int]:
    """Return the ports of a container of ours that the edge may reach."""
    return _ports.validate_json(inspection["Config"]["Labels"].get(LABEL_PORTS, "[]"))


def network_of(inspection: Mapping[str, Any]) -> GangNetwork | None:
    """Return the network on which a container of ours meets the others of its session."""
    text = inspection["Config"]["Labels"].get(LABEL_NETWORK)
    return GangNetwork.model_validate_json(text) if text else None


def address_of(inspection: Mapping[str, Any]) -> str:
    """Return the address at which this node reaches a running container; empty where it has none."""
    networks = inspection["NetworkSettings"]["Networks"].items()
    reached = (network["IPAddress"] for name, network in networks if not gang.is_gang(name))
    return next((str(address) for address in reached if address), "")


def _labels(spec: ContainerSpec, granted: CoreGrant, kind: Enforcement | None) -> dict[str, str]:
    held = {LABEL_ENFORCEMENT: str(kind)} if kind else {}
    meets = {LABEL_NETWORK: spec.network.model_dump_json()} if spec.network else {}
    return {
        **held,
        **meets,
        LABEL_ID: spec.id,
        LABEL_SESSION: spec.session_id,
        LABEL_SESSION_NAME: spec.session_name,
        LABEL_PROJECT: spec.project,
        LABEL_USER: spec.user,
        LABEL_GPUS: json.dumps([grant.model_dump() for grant in spec.gpus]),
        LABEL_CORES: cores.write(granted.cores),
        LABEL_CPU_MILLI: str(granted.milli),
        LABEL_PORTS: json.dumps(spec.ports),
        LABEL_DIGEST: digest_of(spec),
    }


def _environment(spec: ContainerSpec, needs: Needs, confinement: Confinement | None) -> dict[str, str]:
    ours = {
        "PENSTOCK_SESSION": spec.session_name,
        "PENSTOCK_PROJECT": spec.project,
        "PENSTOCK_GPUS": ",".join(grant.uuid for grant in spec.gpus),
        "PENSTOCK_GPU_SHARE": ",".join(str(grant.milli) for grant in spec.gpus),
    }
    # images for NVIDIA GPUs ask for all of them by default, and a user may too; a session gets what it was granted
    ours["NVIDIA_VISIBLE_DEVICES"] = "void"
    # the runtime reads it, and takes it out again: nobody else may say what the sandbox is
    confined = {runtime.VARIABLE: confinement.model_dump_json()} if confinement else {}
    meets = gang.environment() if spec.network else {}
    return {**cores.threads(spec.cpu_milli), **meets, **spec.environment, **ours, **confined, **needs.environment}


def _unknown_gpus(spec: ContainerSpec, devices: Mapping[str, GpuDevice]) -> Iterable[Problem]:
    for position, grant in enumerate(spec.gpus):
        if grant.uuid not in devices:
            yield Problem(
                f"gpus.{position}.uuid", f"this node has no GPU {grant.uuid}", "grant a GPU of the node's inventory"
            )
    if len({grant.uuid for grant in spec.gpus}) < len(spec.gpus):
        yield Problem("gpus", "a GPU is granted twice", "grant each GPU once, with the sum of its shares")


def _forbidden_mounts(spec: ContainerSpec, roots: Sequence[Path]) -> Iterable[Problem]:
    for position, mount in enumerate(spec.mounts):
        # a link inside of a volume must not lead out of it
        if folders.root_of(source := Path(mount.source), roots) is None:
            allowed = ", ".join(map(str, roots)) or "none"
            yield Problem(
                f"mounts.{position}.source",
                f"{source.resolve()} is outside of the folders that may be mounted ({allowed})",
                "mount a folder below one of them",
            )
        if belongs_to_system(mount.target) or ".." in PurePosixPath(mount.target).parts:
            yield Problem(f"mounts.{position}.target", f"{mount.target} belongs to the system", "choose another folder")


def _time(text: str) -> datetime | None:
    return None if text == _NEVER else datetime.fromisoformat(text)
