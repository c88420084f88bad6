"""What the agent does for GPU shares while containers run: gives windows, watches memory, and tells of their use."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.agent.docker.supervisor import Supervisor
from appliance.agent.reports.use import Outbox, Sampler
from appliance.agent.settings import Settings
from appliance.agent.shares.arbiter import Arbiter
from appliance.agent.shares.gauge import Gauge
from appliance.agent.shares.guard import Guard
from appliance.agent.shares.shares import Shares
from appliance.gpu import rooms
from appliance.gpu.accelerators import Accelerator
from appliance.gpu.devices import Gpus
from appliance.gpu.driver import Driver
from appliance.gpu.enforcement import Accounting, Enforcer
from appliance.gpu.mig import Mig
from appliance.gpu.mps import Mps
from appliance.gpu.preload import Preload
from appliance.gpu.telemetry import Telemetry
from common.gpu.kinds import Enforcement


@dataclass(frozen=True)
class Upkeep:
    """The parts that work on GPU shares as long as the agent runs."""

    settings: Settings
    shares: Shares
    preload: Preload
    telemetry: Telemetry
    arbiter: Arbiter

    def tasks(self, supervisor: Supervisor) -> list[Coroutine[Any, Any, None]]:
        """Return what must run beside the supervisor, for ever."""
        gauge = Gauge(self.shares, self.telemetry)
        guard = Guard(self.shares, gauge, self.settings.gpu_slack_mib, supervisor.end)
        sampler = Sampler(self.shares, gauge, self.preload)
        return [
            self.arbiter.run(),
            guard.run(supervisor.tell),
            Outbox(self.settings).run(sampler, supervisor.running),
        ]

    def close(self) -> None:
        """End the session with NVML."""
        self.telemetry.close()


def build(settings: Settings, gpus: Gpus, accelerators: Sequence[Accelerator], cgroup_manager: str) -> Upkeep:
    """Put the parts together; raises PenstockError where the node's GPUs cannot be asked.

    `cgroup_manager` makes the cgroups of containers, as Docker names it.
    """
    telemetry = Telemetry()
    preload = Preload(settings.gpu_library, settings.gpu_folder, settings.gpu_compute, rooms.take)
    enforcers: dict[Enforcement, Enforcer] = {
        Enforcement.DRIVER: Driver(telemetry, preload, cgroup_manager),
        Enforcement.MIG: Mig(),
        Enforcement.SHIM: preload,
        Enforcement.MPS: Mps(telemetry, settings.mps_folder, settings.gpu_compute),
        Enforcement.NONE: Accounting(),
    }
    shares = Shares(gpus, accelerators, enforcers, settings.enforcement, settings.gpu_folder)
    arbiter = Arbiter(shares, preload, settings.gpu_compute, settings.gpu_period_ms)
    return Upkeep(settings, shares, preload, telemetry, arbiter)
