"""The fake machine as a test sees it from outside: what its GPUs hold, and processes that are not the fake driver's."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MOST = 2048


class _Use(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_int), ("bytes", ctypes.c_uint64), ("percent", ctypes.c_uint))


@dataclass(frozen=True)
class Use:
    """Memory of one process on a GPU, and per cent of the last second in which its kernels ran."""

    pid: int
    bytes: int
    percent: int


@dataclass(frozen=True)
class Limit:
    """Limits of a control group in bytes, and what its processes hold."""

    soft: int
    hard: int
    used: int


class Machine:
    """The machine of one state file, which is made where it is missing. `library` is the folder that `build` filled."""

    def __init__(self, library: Path, state: Path) -> None:
        self.state = state
        self._library: Any = ctypes.CDLL(str(library / "libmachine.so"))
        for name in ("machine_used", "machine_peak", "machine_busy"):
            getattr(self._library, name).restype = ctypes.c_uint64

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to be on this machine, beside LD_LIBRARY_PATH and the machine's settings."""
        return {"FAKE_GPU_STATE": str(self.state)}

    def used(self, gpu: int = 0) -> int:
        """Bytes that living processes hold on a GPU."""
        return int(self._opened().machine_used(gpu))

    def peak(self, gpu: int = 0) -> int:
        """The most bytes that were ever held at one time."""
        return int(self._opened().machine_peak(gpu))

    def busy_ns(self, gpu: int, pid: int) -> int:
        """Nanoseconds that kernels of a living process were queued for."""
        return int(self._opened().machine_busy(gpu, pid))

    def uses(self, gpu: int = 0) -> list[Use]:
        """Living processes with memory or work on a GPU."""
        found = (_Use * _MOST)()
        count = self._opened().machine_processes(gpu, found, _MOST)
        return [Use(use.pid, use.bytes, use.percent) for use in found[:count]]

    def plant(self, pid: int, gpu: int, size: int, percent: int = 0) -> None:
        """Let a living process hold `size` bytes, as if it used the GPU: NVML lists it until it dies."""
        if self._opened().machine_plant(pid, gpu, ctypes.c_uint64(size), percent) != 0:
            raise ProcessLookupError(pid)

    def limit(self, gpu: int, group: Path | str) -> Limit | None:
        """Limits that the driver holds for a control group on a GPU."""
        numbers = [ctypes.c_uint64() for _ in range(3)]
        pointers = [ctypes.byref(number) for number in numbers]
        if self._opened().machine_get_limit(gpu, str(group).encode(), *pointers) != 0:
            return None
        return Limit(*(number.value for number in numbers))

    def _opened(self) -> Any:
        self._library.machine_open(str(self.state).encode())
        return self._library
