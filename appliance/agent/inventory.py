"""What a node has: cores, memory, Docker, and GPUs by NVML, or simulated ones where the settings ask for them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pynvml
import structlog

from appliance.agent.protocol import GpuDevice, Inventory
from appliance.agent.settings import Settings
from appliance.gpu.share import MAX_GPUS
from reservoir.errors import InputError, UnavailableError

log = structlog.get_logger()

ENFORCEMENT = "none"
"""Shares are accounted for and not held by force."""


def take(settings: Settings, engine_info: dict[str, Any]) -> Inventory:
    """Return the inventory of this node; `engine_info` is Docker's answer to `info`.

    Raises InputError where the node has more GPUs than a node may have.
    """
    gpus = simulated_gpus(settings) if settings.simulated_gpus else real_gpus()
    return Inventory(
        name=settings.name,
        agent_version=version("penstock"),
        engine_version=engine_info["ServerVersion"],
        os=engine_info["OperatingSystem"],
        cpu_milli=engine_info["NCPU"] * 1000,
        memory_mib=engine_info["MemTotal"] >> 20,
        gpus=gpus,
        enforcement=ENFORCEMENT,
    )


def simulated_gpus(settings: Settings) -> list[GpuDevice]:
    """Return the GPUs that the settings ask for; their ids stay the same from one start to the next."""
    return [
        GpuDevice(
            index=index,
            uuid=f"SIM-{settings.name}-{index}",
            model=settings.simulated_gpu_model,
            memory_mib=settings.simulated_gpu_memory_mib,
            simulated=True,
        )
        for index in range(settings.simulated_gpus)
    ]


def real_gpus() -> list[GpuDevice]:
    """Return the GPUs that NVML sees, in its order; none where the machine has no NVIDIA driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return []
    except pynvml.NVMLError_DriverNotLoaded:
        log.warning("no GPUs: NVML is installed but the driver is not loaded", cure="load the nvidia kernel module")
        return []
    except pynvml.NVMLError as error:
        raise UnavailableError(f"NVML does not start: {error}", where="NVML", cure="check `nvidia-smi`") from error
    try:
        return _devices()
    except pynvml.NVMLError as error:
        raise UnavailableError(f"NVML fails: {error}", where="NVML", cure="check `nvidia-smi`") from error
    finally:
        pynvml.nvmlShutdown()


def _devices() -> list[GpuDevice]:
    count = pynvml.nvmlDeviceGetCount()
    if count > MAX_GPUS:
        raise InputError(
            f"this node has {count} GPUs; a node may have at most {MAX_GPUS}",
            where="GPUs",
            cure=f"hide {count - MAX_GPUS} of them from the driver, or split the machine into two nodes",
        )
    devices = []
    for index in range(count):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        devices.append(
            GpuDevice(
                index=index,
                uuid=pynvml.nvmlDeviceGetUUID(handle),
                model=pynvml.nvmlDeviceGetName(handle),
                memory_mib=pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
            )
        )
    return devices
