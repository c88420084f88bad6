"""What a node has: cores, memory, Docker, and GPUs by NVML, or simulated ones where the settings ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from appliance.agent import nvml
from appliance.agent.nvml import Gpus
from appliance.agent.protocol import GpuDevice, Inventory
from appliance.agent.settings import Settings
from appliance.gpu.kinds import Enforcement

ENFORCEMENT = Enforcement.NONE
"""Shares are accounted for and not held by force."""


def gpus(settings: Settings) -> Gpus:
    """Return the GPUs of this node; raises PenstockError where they cannot be told."""
    return Gpus(simulated_gpus(settings)) if settings.simulated_gpus else nvml.discover()


def take(settings: Settings, engine_info: dict[str, Any], found: Gpus, cores: Sequence[int]) -> Inventory:
    """Return the inventory of this node; `engine_info` is Docker's answer to `info`, `cores` those of sessions."""
    return Inventory(
        name=settings.name,
        agent_version=version("penstock"),
        engine_version=engine_info["ServerVersion"],
        os=engine_info["OperatingSystem"],
        cpu_milli=len(cores) * 1000,
        memory_mib=engine_info["MemTotal"] >> 20,
        gpus=found.devices,
        enforcement=ENFORCEMENT,
        nvlink=found.nvlink,
        driver_version=found.driver_version,
        cuda_version=found.cuda_version,
        region=settings.region,
        switch=settings.switch,
        started_at=datetime.now(UTC),
    )


def simulated_gpus(settings: Settings) -> list[GpuDevice]:
    """Return the GPUs that the settings ask for; their ids stay the same from one start to the next."""
    count = settings.simulated_gpus
    return [
        GpuDevice(
            index=index,
            uuid=f"SIM-{settings.name}-{index}",
            model=settings.simulated_gpu_model,
            memory_mib=settings.simulated_gpu_memory_mib,
            simulated=True,
            island=index * min(settings.simulated_gpu_islands, count) // count,
        )
        for index in range(count)
    ]
