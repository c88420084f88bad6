"""Rules of what a node runs beside what it runs already, the same for every runtime. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from common import image_references
from common.errors import ConflictError, InputError, Problem
from common.gpu.share import MILLI, GpuShare, format_gpus
from common.protocol import (
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    GpuDevice,
    Mount,
    belongs_to_system,
)

MAX_CONTAINERS = 100


def check(spec: ContainerSpec, devices: Mapping[str, GpuDevice], others: Iterable[ContainerState]) -> None:
    """Refuse a spec that this node must not run beside `others`, the containers that it has already.

    Raises InputError for a spec that can never run here, ConflictError for one that does not fit now.
    """
    image_references.check(spec.image)
    problems = [*_unknown_gpus(spec, devices)]
    if problems:
        raise InputError.of(problems)
    live = [state for state in others if not state.status.is_final]
    if len(live) >= MAX_CONTAINERS:
        raise ConflictError(
            f"the node runs {len(live)} containers, and {MAX_CONTAINERS} are the most that a node may run",
            where="id",
            hint="use another node, or end a session on this one",
        )
    check_fit(spec.gpus, devices, live)


def check_fit(shares: Sequence[GpuShare], devices: Mapping[str, GpuDevice], others: Iterable[ContainerState]) -> None:
    """Refuse shares that do not fit on their GPUs beside those of the containers `others`; raises ConflictError."""
    live = [state for state in others if not state.status.is_final]
    for position, share in enumerate(shares):
        used = sum(held.milli for state in live for held in state.gpus if held.uuid == share.uuid)
        # a MIG device goes to one container, whatever its share says
        if used + (MILLI if devices[share.uuid].parent else share.milli) > MILLI:
            raise ConflictError(
                f"{format_gpus(used)} of GPU {share.uuid} is in use, so {format_gpus(share.milli)} more does not fit",
                where=f"gpus.{position}",
                hint="use another GPU, or end a session on this one",
            )


def check_runs(state: ContainerState, pid: int | None = None) -> None:
    """Refuse what only a running container can do; `pid` is that of its first process. Raises ConflictError."""
    if state.status is not ContainerStatus.RUNNING or pid == 0:
        raise ConflictError(f"container {state.id} does not run", where="id", hint="change the shares of one that runs")


def hidden_system(position: int, mount: Mount) -> Iterable[Problem]:
    """Return what is wrong with the target of a mount: that it would hide the container's system."""
    if belongs_to_system(mount.target) or ".." in PurePosixPath(mount.target).parts:
        yield Problem(f"mounts.{position}.target", f"{mount.target} belongs to the system", "choose another folder")


def _unknown_gpus(spec: ContainerSpec, devices: Mapping[str, GpuDevice]) -> Iterable[Problem]:
    for position, share in enumerate(spec.gpus):
        if share.uuid not in devices:
            yield Problem(f"gpus.{position}.uuid", f"this node has no GPU {share.uuid}", "give a GPU that the node has")
    if len({share.uuid for share in spec.gpus}) < len(spec.gpus):
        yield Problem("gpus", "a GPU is given twice", "give each GPU once, with the sum of its shares")
