"""Devices and shares for tests."""

from __future__ import annotations

from appliance.gpu.devices import DeviceShare
from common.gpu.kinds import Enforcement
from common.protocol import GpuDevice

GPU = GpuDevice(index=0, uuid="GPU-1", model="H", memory_mib=8192)
SECOND = GpuDevice(index=1, uuid="GPU-2", model="H", memory_mib=8192)
SLICE = GpuDevice(
    index=2,
    uuid="MIG-1",
    model="H",
    memory_mib=2048,
    enforcement=Enforcement.MIG,
    parent="GPU-9",
    profile="1g.2gb",
    capacity_milli=250,
)
SIMULATED = GpuDevice(index=3, uuid="SIM-1", model="S", memory_mib=8192, simulated=True, accelerator="simulated")
QUARTER = DeviceShare(GPU, 250)
WHOLE = DeviceShare(SECOND, 1000)
