"""Bodies of the preset endpoints."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.resources.schemas import Change, Name, Request, Text, View
from common.gpu.kinds import Enforcement
from common.protocol import DEFAULT_SHM_MIB

MAX_CPU_MILLI = 4_096_000
MAX_MEMORY_MIB = 64 * 1024 * 1024

CpuMilli = Annotated[int, Field(ge=0, le=MAX_CPU_MILLI)]
"""Thousandths of a core; 0: no limit."""
MemoryMib = Annotated[int, Field(ge=0, le=MAX_MEMORY_MIB)]
"""MiB; 0: what goes with the share of GPUs, or with the cores."""
ShmMib = Annotated[int, Field(ge=1, le=MAX_MEMORY_MIB)]
"""MiB of `/dev/shm`."""
GpuMilli = Annotated[int, Field(ge=0)]
"""Milli-GPU; 0: none."""
Description = Annotated[Text, Field(max_length=2000)]


class PresetRequest(Request):
    """A preset to create, for one container: thousandths of a core, MiB, milli-GPU; no CPU is no limit.

    Its GPU share is held by `enforcement` or a stronger kind.
    """

    name: Name
    description: Description = ""
    cpu_milli: CpuMilli = 0
    memory_mib: MemoryMib = 0
    shm_mib: ShmMib = DEFAULT_SHM_MIB
    gpu_milli: GpuMilli = 0
    enforcement: Enforcement = Enforcement.NONE


class PresetChange(Change):
    """What to change of a preset; what is left out stays, and so do the sessions that were submitted with it."""

    description: Description | None = None
    cpu_milli: CpuMilli | None = None
    memory_mib: MemoryMib | None = None
    shm_mib: ShmMib | None = None
    gpu_milli: GpuMilli | None = None
    enforcement: Enforcement | None = None


class PresetView(View):
    """A preset."""

    name: str
    description: str
    cpu_milli: int
    memory_mib: int
    shm_mib: int
    gpu_milli: int
    enforcement: Enforcement
