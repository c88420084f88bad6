"""Health of GPUs as NVML tells it: whether each still answers, how hot it is, its errors, its clocks and its links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml

from appliance.gpu.devices import GpuHealth
from appliance.gpu.nvml import known
from appliance.gpu.telemetry import Telemetry

SLOWED = {
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "it is too hot",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "its power supply brakes it",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "the driver keeps it cool",
}
"""Why clocks are held down that should not be; limits of power and idle clocks are how GPUs work."""


def look(telemetry: Telemetry, uuid: str) -> GpuHealth:
    """Return the health of a GPU by its id; it may block."""
    try:
        with telemetry.session():
            return _look(telemetry.handle(uuid))
    except pynvml.NVMLError_GpuIsLost:
        return GpuHealth(silent="it has fallen off the bus")
    except pynvml.NVMLError_NotFound:
        return GpuHealth(silent="NVML does not know it any more")
    except pynvml.NVMLError as error:
        return GpuHealth(silent=f"NVML fails: {error}")


def _look(handle: Any) -> GpuHealth:
    kind, counter = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    rows = known(lambda: pynvml.nvmlDeviceGetRemappedRows(handle)) or (0, 0, 0, 0)
    reasons = known(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
    links = list(_links(handle))
    return GpuHealth(
        bus=pynvml.nvmlDeviceGetPciInfo_v3(handle).busId,
        temperature_c=known(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        uncorrected=known(lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter)),
        needs_reset=bool(rows[2]),
        needs_replacement=bool(rows[3]),
        slowed=tuple(why for bit, why in SLOWED.items() if reasons & bit),
        links=sum(links),
        all_links=len(links),
    )


def _links(handle: Any) -> Iterator[bool]:
    """Yield of each NVLink that a GPU has whether it is up."""
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            state = known(lambda link=link: pynvml.nvmlDeviceGetNvLinkState(handle, link))  # type: ignore[misc]
        except pynvml.NVMLError_InvalidArgument:
            return
        if state is not None:
            yield bool(state)
