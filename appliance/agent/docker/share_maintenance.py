"""Maintenance of GPU shares while containers run: gives windows, enforces memory, and tells what they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from appliance.agent.docker.supervisor import Supervisor
from appliance.agent.reports.gpu_metrics import Outbox, Sampler
from appliance.agent.settings import Settings
from appliance.agent.shares.arbiter import Arbiter
from appliance.agent.shares.gpu_readings import GpuReadings
from appliance.agent.shares.kernel_watch import KernelWatch
from appliance.agent.shares.memory_enforcer import MemoryEnforcer
from appliance.agent.shares.share_manager import ShareManager
from appliance.agent.supervision import Work
from appliance.gpu import tmpfs_quota
from appliance.gpu.accelerators import Accelerator
from appliance.gpu.devices import Gpus
from appliance.gpu.driver import Driver
from appliance.gpu.enforcement import AccountedOnly, Enforcer
from appliance.gpu.mig import Mig
from appliance.gpu.mps import Mps
from appliance.gpu.preload import Preload
from appliance.gpu.telemetry import Telemetry
from common.checks import Check
from common.gpu.kinds import Enforcement


@dataclass(frozen=True)
class ShareMaintenance:
    """The parts that work on GPU shares as long as the agent runs."""

    settings: Settings
    shares: ShareManager
    preload: Preload
    telemetry: Telemetry
    arbiter: Arbiter
    readings: GpuReadings
    kernels: KernelWatch
    mps: Mps

    def tasks(self, supervisor: Supervisor) -> dict[str, Work]:
        """Return what must run beside the supervisor, for ever, by names."""
        enforcer = MemoryEnforcer(self.shares, self.readings, self.preload, self.settings.gpu_slack_mib, supervisor.end)
        sampler = Sampler(self.shares, self.readings, self.preload)
        outbox = Outbox(self.settings)
        return {
            "timetable": self.arbiter.run,
            "memory": partial(enforcer.run, supervisor.tell),
            "kernels": partial(self.kernels.run, supervisor.tell),
            "metrics": partial(outbox.run, sampler, supervisor.running),
        }

    def looks(self) -> dict[str, Callable[[], Iterable[Check]]]:
        """Return what the node's health has of shares, by names."""
        return {"kernels": self.kernels.checks, "mps": self.mps.daemons}

    def close(self) -> None:
        """End the session with NVML."""
        self.telemetry.close()


def build(settings: Settings, gpus: Gpus, accelerators: Sequence[Accelerator], cgroup_manager: str) -> ShareMaintenance:
    """Put the parts together; raises PenstockError where the node's GPUs cannot be asked.

    `cgroup_manager` makes the cgroups of containers, as Docker names it.
    """
    telemetry = Telemetry()
    preload = Preload(settings.gpu_library, settings.gpu_folder, settings.gpu_compute, tmpfs_quota.mount)
    mps = Mps(telemetry, settings.mps_folder, settings.gpu_compute)
    enforcers: dict[Enforcement, Enforcer] = {
        Enforcement.DRIVER: Driver(telemetry, preload, cgroup_manager),
        Enforcement.MIG: Mig(),
        Enforcement.SHIM: preload,
        Enforcement.MPS: mps,
        Enforcement.NONE: AccountedOnly(),
    }
    shares = ShareManager(gpus, accelerators, enforcers, settings.enforcement, settings.gpu_folder)
    arbiter = Arbiter(shares, preload, settings.gpu_compute, settings.gpu_period_ms)
    readings = GpuReadings(shares, telemetry)
    kernels = KernelWatch(shares, readings, preload)
    return ShareMaintenance(settings, shares, preload, telemetry, arbiter, readings, kernels, mps)
