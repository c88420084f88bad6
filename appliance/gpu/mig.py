"""MIG devices: slices of a GPU's hardware, cut by the administrator and handed out whole, each to one container."""

from __future__ import annotations

from typing import Any

import pynvml

from appliance.gpu.enforcement import AccountedOnly
from common.gpu.kinds import Enforcement
from common.gpu.share import MILLI
from common.protocol import GpuDevice

_NAME = "MIG "
"""What stands before the profile in NVML's name of a MIG device: `NVIDIA A100-SXM4-40GB MIG 1g.5gb`."""


class Mig(AccountedOnly):
    """Shares that are MIG devices: the hardware holds their limits, and nothing else is needed."""

    def __init__(self) -> None:
        """Leave all to the hardware."""
        super().__init__(Enforcement.MIG)


def is_cut(handle: Any) -> bool:
    """Return whether MIG is on for a GPU: then nobody can use it but by its MIG devices."""
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def slices(handle: Any, parent: GpuDevice, first: int) -> list[GpuDevice]:
    """Return the MIG devices of a GPU, numbered from `first` on; none where the administrator has not cut it yet."""
    found: list[GpuDevice] = []
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            slice_ = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except pynvml.NVMLError_NotFound:
            continue
        memory_mib = pynvml.nvmlDeviceGetMemoryInfo(slice_).total >> 20
        found.append(
            GpuDevice(
                index=first + len(found),
                uuid=pynvml.nvmlDeviceGetUUID(slice_),
                model=parent.model,
                memory_mib=memory_mib,
                island=parent.island,
                enforcement=Enforcement.MIG,
                parent=parent.uuid,
                profile=pynvml.nvmlDeviceGetName(slice_).rpartition(_NAME)[2],
                # rounded down, so that the slices of a GPU are never more than the GPU
                capacity_milli=min(max(memory_mib * MILLI // parent.memory_mib, 1), MILLI),
            )
        )
    return found
