"""Memory limits by NVIDIA's driver: per container and GPU, through NVML, for the container's cgroup.

The driver forgets a limit with the cgroup, so nothing is left of a container that has gone. The cgroup is made before
the container starts, which takes it with its limit; so no process of it runs without one. The driver does not share the
time of a GPU; where the preload library is on the node, that does, and keeps to the same memory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import pynvml
import structlog

from appliance.gpu import cgroups
from appliance.gpu.devices import DeviceShare, Needs
from appliance.gpu.enforcement import AccountedOnly, Probe
from appliance.gpu.preload import Preload
from appliance.gpu.telemetry import Telemetry
from common.errors import UnavailableError
from common.gpu.kinds import Compute, Enforcement
from common.protocol import GpuDevice

log = structlog.get_logger()

OLDEST_DRIVER = 615
"""The first major version of the driver that has limits per cgroup."""


class Driver(AccountedOnly):
    """Limits that the driver itself holds."""

    fences = True

    def __init__(
        self,
        telemetry: Telemetry,
        preload: Preload | None = None,
        manager: str = "systemd",
        proc: Path = cgroups.PROC,
        root: Path = cgroups.ROOT,
    ) -> None:
        """Prepare for calls of NVML; `preload` shares time, `manager` makes the cgroups of containers.

        `proc` and `root` are where processes and cgroups are.
        """
        super().__init__(Enforcement.DRIVER)
        self._telemetry = telemetry
        self._preload = preload
        self._manager = manager
        self._fenced: dict[str, Path] = {}
        self._proc = proc
        self._root = root

    def probe(self, devices: Sequence[GpuDevice]) -> Probe:
        """Return whether the driver is new enough, the machine has cgroups of version 2, and each GPU has limits."""
        try:
            with self._telemetry.session():
                version = pynvml.nvmlSystemGetDriverVersion()
                if int(version.split(".")[0]) < OLDEST_DRIVER:
                    return Probe(False, f"driver {version} is older than {OLDEST_DRIVER}")
                if not cgroups.is_unified(self._root):
                    return Probe(False, "the machine has no cgroup v2")
                for device in devices:
                    self._limits(device.uuid, self._root)
        except (pynvml.NVMLError, ValueError) as error:
            return Probe(False, f"the driver has no memory limits for these GPUs: {error}")
        return Probe(True, f"driver {version} limits memory per container")

    def prepare(self, container: str, shares: Sequence[DeviceShare]) -> None:
        """Write what the preload library needs to share time, where it is to; raises UnavailableError."""
        preload = self._preload
        if preload and preload.compute is not Compute.OFF and preload.probe([]).available:
            preload.prepare(container, shares)

    def needs(self, container: str, shares: Sequence[DeviceShare]) -> Needs:
        """Return what the preload library needs, where it shares time."""
        return self._preload.needs(container, shares) if self._preload and self._preload.has(container) else Needs()

    def fence(self, container: str, shares: Sequence[DeviceShare], engine_id: str) -> None:
        """Make the cgroup in which the container will start, and set its limits.

        Raises UnavailableError where one cannot be set, so that the container does not start.
        """
        group = cgroups.folder_to_be(engine_id, self._manager, self._root)
        try:
            group.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"the cgroup of the session cannot be made: {error.strerror}",
                where=str(group),
                hint="let root run the agent",
            ) from error
        self._fenced[container] = group
        self._limit(container, shares, group)

    def apply(self, container: str, shares: Sequence[DeviceShare], pid: int) -> None:
        """Set the limits of the container's cgroup, the share as both what is guaranteed and what is allowed.

        Raises UnavailableError where one cannot be set.
        """
        group = cgroups.folder_of(pid, self._proc, self._root)
        if self._fenced.get(container, group) != group:
            log.warning(
                "Docker made the cgroup elsewhere: it had no limit for a moment", id=container, group=str(group)
            )
            self._unfence(container)
        self._limit(container, shares, group)
        if self._preload and self._preload.has(container):
            self._preload.apply(container, shares, pid)

    def remove(self, container: str) -> None:
        """Remove the cgroup of a container that never started; Docker removes that of one that did."""
        self._unfence(container)

    def _unfence(self, container: str) -> None:
        if group := self._fenced.pop(container, None):
            with contextlib.suppress(OSError):
                group.rmdir()

    def _limit(self, container: str, shares: Sequence[DeviceShare], group: Path) -> None:
        for share in shares:
            # a whole GPU has no limit but its own size
            most = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX if share.is_whole else share.memory_mib << 20
            wanted = pynvml.c_nvmlSetMemoryLimits_v1_t(os.fsencode(group), 0 if share.is_whole else most, most)
            try:
                with self._telemetry.session():
                    pynvml.nvmlDeviceSetMemoryLimits_v1(self._telemetry.handle(share.device.uuid), wanted)
            except pynvml.NVMLError as error:
                raise UnavailableError(
                    f"the driver does not take the memory limit of GPU {share.device.uuid}: {error}",
                    where=container,
                    hint="see `nvidia-smi memory-limits` on the node, or put another kind of enforcement first",
                ) from error
            log.info("the driver holds a limit", id=container, gpu=share.device.uuid, memory_mib=share.memory_mib)

    def _limits(self, uuid: str, group: Path) -> None:
        """Ask for the limits of a cgroup; raises NVMLError where the GPU knows no limits at all."""
        answer = pynvml.c_nvmlGetMemoryLimits_v1_t(os.fsencode(group))
        # a group without limits of its own is no trouble
        with contextlib.suppress(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetMemoryLimits_v1(self._telemetry.handle(uuid), answer)
