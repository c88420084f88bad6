"""Specs and states of containers, as tests of the agent need them."""

from __future__ import annotations

from typing import Any

from common.gpu.share import GpuShare
from common.protocol import ContainerSpec, ContainerState, ContainerStatus, GpuDevice

DEVICES = {
    "GPU-real": GpuDevice(index=0, uuid="GPU-real", model="H", memory_mib=1),
    "MIG-1": GpuDevice(index=2, uuid="MIG-1", model="H", memory_mib=1, parent="GPU-cut", profile="1g.10gb"),
    "SIM-1": GpuDevice(index=1, uuid="SIM-1", model="S", memory_mib=1, simulated=True),
}


def make(**changes: Any) -> ContainerSpec:
    wanted: dict[str, Any] = {
        "id": "c1",
        "session_id": "s1",
        "session_name": "train",
        "project": "team-a",
        "user": "alice",
        "image": "python:3.11",
    }
    return ContainerSpec.model_validate({**wanted, **changes})


def gpu_share(uuid: str, milli: int, index: int = 0) -> dict[str, Any]:
    return {"uuid": uuid, "index": index, "milli": milli}


def held(milli: int, status: ContainerStatus = ContainerStatus.RUNNING, uuid: str = "SIM-1") -> ContainerState:
    gpu_shares = [GpuShare(uuid=uuid, index=1, milli=milli)]
    return ContainerState(id="other", session_id="s2", status=status, gpus=gpu_shares)
