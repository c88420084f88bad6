"""Processes on the GPUs of this node now, as NVML tells of them, through one open session with NVML."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml
import structlog

log = structlog.get_logger()

_HINT = "check `nvidia-smi`"
_CANNOT_TELL = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound)
_DRIVER_WIDE = (
    pynvml.NVMLError_Uninitialized,
    pynvml.NVMLError_DriverNotLoaded,
    pynvml.NVMLError_LibRmVersionMismatch,
    pynvml.NVMLError_Unknown,
)


class Telemetry:
    """NVML, opened when it is first needed and again after a failure; may be used by several threads."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._lock = threading.RLock()
        self._open = False
        self._failing: set[tuple[str, str]] = set()
        self._handles: dict[str, Any] = {}

    @contextmanager
    def session(self) -> Iterator[None]:
        """Let one thread use NVML; raises NVMLError where it does not answer, and opens it anew next time."""
        with self._lock:
            try:
                if not self._open:
                    pynvml.nvmlInit()
                    self._open = True
                yield
            except pynvml.NVMLError as error:
                # one GPU may be lost; a driver that was loaded anew knows nothing of the session from before
                if isinstance(error, _DRIVER_WIDE):
                    self.close()
                elif not isinstance(error, _CANNOT_TELL):
                    self._handles.clear()
                raise

    def handle(self, uuid: str) -> Any:
        """Return NVML's handle of a GPU or MIG device, within a session; raises NVMLError."""
        if uuid not in self._handles:
            self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return self._handles[uuid]

    def memory(self, uuid: str) -> dict[int, int] | None:
        """Return the bytes that each process has on a device, by process id of this machine; None: nobody can tell."""
        return self._ask("memory", uuid, lambda: self._memory(self.handle(uuid)))

    def busy(self, uuid: str, since_us: int) -> dict[int, int] | None:
        """Return the permille of a GPU's time that each process used lately; None where nobody can tell.

        Only what NVML sampled after `since_us`, in µs of the wall clock, counts.
        """
        return self._ask("time", uuid, lambda: self._busy(self.handle(uuid), since_us))

    def close(self) -> None:
        """End the session with NVML."""
        with self._lock:
            self._handles.clear()
            if self._open:
                self._open = False
                try:
                    pynvml.nvmlShutdown()
                except pynvml.NVMLError as error:
                    log.warning("NVML does not end", reason=str(error))

    def _ask(self, what: str, uuid: str, question: Callable[[], dict[int, int]]) -> dict[int, int] | None:
        asked = what, uuid
        try:
            with self.session():
                answer = question()
        except _CANNOT_TELL:
            return None
        except pynvml.NVMLError as error:
            # asked each second: one line when it begins and one when it ends
            if asked not in self._failing:
                reason = str(error)
                log.warning("NVML does not tell what processes use", what=what, gpu=uuid, reason=reason, hint=_HINT)
            self._failing.add(asked)
            return None
        if asked in self._failing:
            log.info("NVML tells again what processes use", what=what, gpu=uuid)
        self._failing.discard(asked)
        return answer

    def _memory(self, handle: Any) -> dict[int, int]:
        found: dict[int, int] = {}
        for process in [*_compute(handle), *_graphics(handle)]:
            # one that computes and draws is listed twice with the same memory
            found[process.pid] = max(found.get(process.pid, 0), process.usedGpuMemory or 0)
        return found

    def _busy(self, handle: Any, since_us: int) -> dict[int, int]:
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except pynvml.NVMLError_NotFound:
            return {}
        found: dict[int, list[int]] = {}
        for sample in samples:
            found.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: min(10 * sum(shares) // len(shares), 1000) for pid, shares in found.items()}


def _compute(handle: Any) -> list[Any]:
    try:
        return list(pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))
    except pynvml.NVMLError_FunctionNotFound:
        # drivers before 510
        return list(pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle))


def _graphics(handle: Any) -> list[Any]:
    try:
        return list(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle))
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
        return []
