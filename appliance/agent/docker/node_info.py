"""Information on a machine: cores, memory, Docker, and the devices of its accelerators, or simulated GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from appliance.agent.settings import Settings
from appliance.gpu import accelerators
from appliance.gpu.accelerators import Accelerator, Simulated
from appliance.gpu.devices import Gpus
from common.protocol import NodeInfo


def kinds(settings: Settings) -> list[Accelerator]:
    """Return the accelerators of this node, which are simulated where the settings ask for that; raises InputError."""
    if not settings.simulated_gpus:
        return accelerators.load(settings.accelerators)
    return [
        Simulated(
            settings.name,
            settings.simulated_gpus,
            settings.simulated_gpu_model,
            settings.simulated_gpu_memory_mib,
            settings.simulated_gpu_islands,
        )
    ]


def take(settings: Settings, engine_info: dict[str, Any], found: Gpus, cores: Sequence[int]) -> NodeInfo:
    """Return what this node has; `engine_info` is Docker's answer to `info`, `cores` those of sessions."""
    return NodeInfo(
        name=settings.name,
        agent_version=version("penstock"),
        engine_version=engine_info["ServerVersion"],
        os=engine_info["OperatingSystem"],
        cpu_milli=len(cores) * 1000,
        # of one that says 0 nobody would know how much there is
        memory_mib=max(1, (engine_info["MemTotal"] >> 20) - settings.memory_reserve_mib),
        gpus=found.devices,
        nvlink=found.nvlink,
        driver_version=found.driver_version,
        cuda_version=found.cuda_version,
        region=settings.region,
        switch=settings.switch,
        started_at=datetime.now(UTC),
    )
