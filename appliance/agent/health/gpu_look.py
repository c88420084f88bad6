"""A look at the GPUs of a node: NVML, and the errors in the kernel's log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import structlog

from appliance.agent.health import gpu_checks
from appliance.agent.health.gpu_checks import Expected, LogLine
from appliance.gpu import health
from appliance.gpu.telemetry import Telemetry
from common.checks import Check
from common.protocol import GpuDevice
from common.settings.health import HealthSettings

log = structlog.get_logger()

KERNEL_LOG = Path("/dev/kmsg")
RECORD = 8192
"""Bytes of the longest record of the kernel's log."""
MARK = "Xid"


class KernelLog:
    """The lines of the kernel's log that tell of GPUs, read as they come; a machine that starts has a new log."""

    def __init__(self, path: Path = KERNEL_LOG) -> None:
        """Open nothing yet."""
        self._path = path
        self._descriptor: int | None = None
        self._lines: list[LogLine] = []

    def lines(self) -> list[LogLine] | None:
        """Return all lines so far; None where the log cannot be read, as in a container."""
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._lines += self._new(self._descriptor)
        except OSError as error:
            log.info("the kernel's log cannot be read", reason=str(error))
            return None
        return self._lines

    def _new(self, descriptor: int) -> Iterator[LogLine]:
        started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        while True:
            try:
                record = os.read(descriptor, RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:
                # records were overwritten before they were read; the next read goes on with the oldest
                continue
            if not record:
                return
            head, _, text = record.decode(errors="replace").partition(";")
            if MARK in text:
                at = datetime.fromtimestamp(started + int(head.split(",")[2]) / 1e6, UTC)
                yield LogLine(f"{at:%Y-%m-%dT%H:%M:%SZ}", text.splitlines()[0])


class GpuLook:
    """Looks at the GPUs that a node has; simulated ones are only counted."""

    def __init__(
        self,
        gpus: Callable[[], list[GpuDevice]],
        expected: Expected,
        settings: HealthSettings,
        kernel_log: KernelLog | None = None,
    ) -> None:
        """Prepare; `gpus` tells what the node has."""
        self._gpus = gpus
        self._expected = expected
        self._settings = settings
        self._telemetry = Telemetry()
        self._log = kernel_log or KernelLog()

    def look(self) -> list[Check]:
        """Return the checks; it may block."""
        gpus = self._gpus()
        found = list(gpu_checks.count(gpu_checks.devices(gpus), self._expected))
        real = gpu_checks.devices(gpu for gpu in gpus if not gpu.simulated and gpu.accelerator == "nvidia")
        if real:
            seen = {uuid: health.look(self._telemetry, uuid) for uuid in real}
            found += gpu_checks.checks(seen, self._log.lines(), self._settings)
        return found
