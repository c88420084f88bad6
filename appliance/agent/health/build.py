"""The monitor of a node, put together from what there is to look at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from appliance.agent.health import machine_look
from appliance.agent.health.fabric_look import FabricLook
from appliance.agent.health.gpu_checks import Expected
from appliance.agent.health.gpu_look import GpuLook
from appliance.agent.health.monitor import Look, Monitor
from appliance.agent.settings import Settings
from common import machine_checks
from common.health import Damping
from common.protocol import NodeInfo


def build(settings: Settings, node_info: Callable[[], NodeInfo], more: Mapping[str, Look]) -> Monitor:
    """Return what looks at this node, and with `more` at what runs there; the GPUs of a cluster are not here."""
    disk = settings.health_disk_warn_percent, settings.disk_stop_percent
    memory = settings.health_memory_warn_percent, settings.health_memory_fail_percent
    looks: dict[str, Look] = {
        "disk": partial(machine_checks.disks, machine_look.folders(settings.docker_root), *disk),
        "memory": partial(machine_checks.memory, *memory),
        "clock": machine_look.clock,
        "service": partial(machine_look.units, settings.units),
        "module": partial(machine_look.modules, settings.kernel_modules),
        "certificate": partial(machine_look.certificates, settings),
        "packages": partial(machine_look.package_source, settings),
        "agent": lambda: machine_look.known(node_info(), tuple(settings.storages)),
    }
    if not settings.kubernetes_api:
        expected = Expected(settings.expected_gpus, settings.expected_gpu_model)
        looks["gpu"] = GpuLook(lambda: node_info().gpus, expected, settings).look
        looks["fabric"] = FabricLook(settings).look
    looks |= more
    damping = Damping(settings.health_looks, settings.health_good_looks)
    return Monitor(looks, damping, time.monotonic)
