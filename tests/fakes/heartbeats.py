"""Heartbeats as agents send them, of nodes with simulated GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from common.check_protocol import CheckReport
from common.protocol import (
    ContainerState,
    ContainerStatus,
    GpuDevice,
    Heartbeat,
    NodeInfo,
)


def node_info(name: str, gpus: int) -> NodeInfo:
    return NodeInfo(
        name=name,
        agent_version="0.1.0",
        engine_version="20.10.24",
        os="Debian 12",
        cpu_milli=8000,
        memory_mib=32768,
        gpus=[
            GpuDevice(index=index, uuid=f"GPU-{name}-{index}", model="Simulated GPU", memory_mib=16384, simulated=True)
            for index in range(gpus)
        ],
    )


def beat(
    sequence: int,
    boot: str = "boot-1",
    status: ContainerStatus | None = None,
    name: str = "worker1",
    *,
    gpus: int = 1,
    containers: Sequence[ContainerState] = (),
    unready: str = "",
    missing_storages: Mapping[str, str] = MappingProxyType({}),
    checks: Sequence[CheckReport] = (),
) -> Heartbeat:
    """Return a heartbeat of a node with these containers; with a `status` it has another one."""
    other = [ContainerState(id="c", session_id="s", status=status)] if status else []
    return Heartbeat(
        name=name,
        address="192.0.2.10",
        port=6001,
        boot=boot,
        sequence=sequence,
        node_info=node_info(name, gpus).model_copy(
            update={"unready": unready, "missing_storages": dict(missing_storages)}
        ),
        containers=[*containers, *other],
        checks=list(checks),
    )
