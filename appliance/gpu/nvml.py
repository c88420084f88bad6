"""GPUs as NVML sees them: what they are, which of them reach each other quickly, and which cores are near them.

A GPU that the administrator has cut into MIG devices is not offered itself; its MIG devices are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, TypeVar

import pynvml
import structlog

from appliance.gpu import mig
from appliance.gpu.devices import Gpus
from common.errors import InputError, UnavailableError
from common.gpu.share import MAX_GPUS
from common.protocol import GpuDevice

log = structlog.get_logger()

R = TypeVar("R")

_WORDS = 64
"""Words of 64 bits in which NVML tells the cores near a GPU: enough for 4,096 of them."""


def discover() -> Gpus:
    """Return the GPUs in NVML's order; none where the machine has no NVIDIA driver.

    Raises UnavailableError where one does not answer, for a smaller node would be wrong, and InputError where the node
    has more GPUs than a node may have.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return Gpus()
    except pynvml.NVMLError_DriverNotLoaded:
        log.warning("no GPUs: NVML is installed but the driver is not loaded", hint="load the nvidia kernel module")
        return Gpus()
    except pynvml.NVMLError as error:
        raise UnavailableError(f"NVML does not start: {error}", where="NVML", hint="check `nvidia-smi`") from error
    try:
        return _gpus()
    except pynvml.NVMLError as error:
        raise UnavailableError(f"NVML fails: {error}", where="NVML", hint="check `nvidia-smi`") from error
    finally:
        pynvml.nvmlShutdown()


def islands(count: int, linked: Iterable[tuple[int, int]], near: Iterable[tuple[int, int]]) -> list[int]:
    """Return the island of each of `count` GPUs, numbered in the order of their first GPU.

    GPUs are of one island where a chain of `linked` pairs leads from one to the other. A GPU without any link shares an
    island with those of its kind that are `near` it.
    """
    pairs = list(linked)
    with_link = {gpu for pair in pairs for gpu in pair}
    pairs += [pair for pair in near if with_link.isdisjoint(pair)]
    first = list(range(count))
    for one, other in pairs:
        low, high = sorted((first[one], first[other]))
        first = [low if island == high else island for island in first]
    numbers = {island: number for number, island in enumerate(dict.fromkeys(first))}
    return [numbers[island] for island in first]


def _gpus() -> Gpus:
    count = pynvml.nvmlDeviceGetCount()
    if count > MAX_GPUS:
        raise InputError(
            f"this node has {count} GPUs; a node may have at most {MAX_GPUS}",
            where="GPUs",
            hint=f"hide {count - MAX_GPUS} of them from the driver, or split the machine into two nodes",
        )
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    linked = [pair for pair in combinations(range(count), 2) if _reach_by_nvlink(handles, pair)]
    near = [pair for pair in combinations(range(count), 2) if _share_numa_node(handles, pair)]
    devices, near_cores, buses = [], {}, {}
    numbers: dict[str, int] = {}
    slices: list[GpuDevice] = []
    for index, (handle, island) in enumerate(zip(handles, islands(count, linked, near), strict=True)):
        gpu = GpuDevice(
            index=index,
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            model=pynvml.nvmlDeviceGetName(handle),
            memory_mib=pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
            island=island,
        )
        number = known(partial(pynvml.nvmlDeviceGetMinorNumber, handle))
        numbers[gpu.uuid] = index if number is None else number
        offered = [gpu]
        if mig.is_cut(handle):
            # numbers of their own, behind those of the GPUs
            offered = mig.slices(handle, gpu, count + len(slices))
            slices += offered
        else:
            devices.append(gpu)
        if bus := _bus(handle):
            buses[index] = bus
        near_cores.update(dict.fromkeys((device.uuid for device in offered), _near_cores(handle)))
    cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    return Gpus(
        devices + slices,
        near=near_cores,
        nvlink=bool(linked),
        driver_version=pynvml.nvmlSystemGetDriverVersion(),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        buses=buses,
        order=tuple(sorted(numbers, key=numbers.__getitem__)),
    )


def _reach_by_nvlink(handles: Sequence[Any], pair: tuple[int, int]) -> bool:
    """Return whether NVLink joins two GPUs, directly or by a switch; links that are down do not count."""
    one, other = (handles[index] for index in pair)
    status = known(lambda: pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK))
    return bool(status == pynvml.NVML_P2P_STATUS_OK)


def _share_numa_node(handles: Sequence[Any], pair: tuple[int, int]) -> bool:
    one, other = (handles[index] for index in pair)
    level = known(lambda: pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other))
    return level is not None and bool(level <= pynvml.NVML_TOPOLOGY_NODE)


def _bus(handle: Any) -> str:
    found = known(lambda: pynvml.nvmlDeviceGetPciInfo_v3(handle))
    return str(found.busId) if found else ""


def _near_cores(handle: Any) -> frozenset[int]:
    words = known(lambda: pynvml.nvmlDeviceGetCpuAffinity(handle, _WORDS)) or ()
    return frozenset(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def known(ask: Callable[[], R]) -> R | None:
    """Return NVML's answer, None where this machine cannot tell: virtual ones hide how they are built."""
    try:
        return ask()
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return None
