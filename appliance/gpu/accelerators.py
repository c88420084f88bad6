"""Kinds of accelerators. NVIDIA's are built in; others come as plugins, by the entry-point group below.

A plugin is a factory without arguments that returns an `Accelerator`; the site names it in the settings of its nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from appliance.gpu import driver_files, nvml
from appliance.gpu.devices import Gpus, Needs
from common.errors import InputError
from common.gpu.kinds import Enforcement
from common.protocol import GpuDevice

GROUP = "penstock.accelerators"


@runtime_checkable
class Accelerator(Protocol):
    """One kind of accelerator: finds its devices, and knows what a container needs to use them.

    `kinds` are the kinds of enforcement that can hold shares of its devices.
    """

    name: str
    kinds: frozenset[Enforcement]

    def discover(self) -> Gpus:
        """Return its devices on this node; raises PenstockError where they cannot be told."""

    def needs(self, devices: Sequence[GpuDevice]) -> Needs:
        """Return what a container needs to use these devices of it."""


class Nvidia:
    """NVIDIA's GPUs, found by NVML and handed out by NVIDIA's toolkit, or without it by the driver's files."""

    name = "nvidia"
    kinds = frozenset(Enforcement)

    def discover(self) -> Gpus:
        """Return NVML's GPUs and MIG devices."""
        return nvml.discover()

    def needs(self, devices: Sequence[GpuDevice]) -> Needs:
        """Let the toolkit give the devices by their ids, where the node has it; raises UnavailableError."""
        if not driver_files.has_toolkit():
            return driver_files.needs(devices)
        uuids = tuple(device.uuid for device in devices)
        return Needs(nvidia=uuids, environment={"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)})


class Simulated:
    """GPUs of a lab, which no hardware stands behind; their shares are accounted for."""

    name = "simulated"
    kinds = frozenset({Enforcement.NONE})

    def __init__(self, node: str, count: int, model: str, memory_mib: int, islands: int) -> None:
        """Prepare `count` GPUs of a node, in so many islands of about equal size."""
        # their ids stay the same from one start to the next
        self._devices = [
            GpuDevice(
                index=index,
                uuid=f"SIM-{node}-{index}",
                model=model,
                memory_mib=memory_mib,
                simulated=True,
                island=index * min(islands, count) // count,
                accelerator=self.name,
            )
            for index in range(count)
        ]

    def discover(self) -> Gpus:
        """Return them all."""
        return Gpus(list(self._devices))

    def needs(self, devices: Sequence[GpuDevice]) -> Needs:
        """A simulated GPU needs nothing."""
        return Needs()


def load(names: Sequence[str]) -> list[Accelerator]:
    """Return the accelerators of these names; raises InputError for one that nothing installed here offers."""
    return [Nvidia() if name == Nvidia.name else _plugin(name) for name in names]


def discover(accelerators: Sequence[Accelerator]) -> Gpus:
    """Return the devices of all accelerators, each marked with the one that found it; raises PenstockError."""
    found = Gpus()
    for accelerator in accelerators:
        own = accelerator.discover()
        # nothing is known of links between devices of different kinds
        first = 1 + max((device.island for device in found.devices), default=-1)
        marked = [
            device.model_copy(update={"accelerator": accelerator.name, "island": first + device.island})
            for device in own.devices
        ]
        found += Gpus(marked, own.near, own.nvlink, own.driver_version, own.cuda_version, own.buses, own.order)
    return found


def _plugin(name: str) -> Accelerator:
    offered = list(entry_points(group=GROUP, name=name))
    if not offered:
        known = ", ".join(sorted({Nvidia.name, *entry_points(group=GROUP).names}))
        raise InputError(
            f"no accelerator {name!r} is installed on this node ({known} are known)",
            where="PENSTOCK_AGENT_ACCELERATORS",
            hint="correct the name, or install the package that offers it",
        )
    made = offered[0].load()()
    if not isinstance(made, Accelerator) or made.name != name:
        raise InputError(
            f"the plugin {offered[0].value} is no accelerator of the name {name}",
            where="PENSTOCK_AGENT_ACCELERATORS",
            hint="install a version of its package that fits this one of Penstock",
        )
    return made
