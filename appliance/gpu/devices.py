"""The devices of a node, a container's shares of them, and what a container needs to use them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from common.gpu.share import MILLI, memory_limit
from common.protocol import GpuDevice, Mount


@dataclass(frozen=True)
class Gpus:
    """All GPUs of a node. `near` leads from a GPU's id to the cores of its NUMA node, where that is known, and `buses`
    from the index of one to its place on the PCI bus, as its driver writes that. `order` has the ids of whole GPUs, cut
    ones among them, by the numbers of their device files, where these are known.
    """

    devices: list[GpuDevice] = field(default_factory=list)
    near: dict[str, frozenset[int]] = field(default_factory=dict)
    nvlink: bool = False
    driver_version: str = ""
    cuda_version: str = ""
    buses: dict[int, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    def __add__(self, other: Gpus) -> Gpus:
        """Return the GPUs of both; the versions are those of the first that has any."""
        return Gpus(
            self.devices + other.devices,
            self.near | other.near,
            self.nvlink or other.nvlink,
            self.driver_version or other.driver_version,
            self.cuda_version or other.cuda_version,
            other.buses | self.buses,
            self.order + other.order,
        )

    def without_last(self, count: int) -> Gpus:
        """Return the GPUs without so many of the last ones, and without the slices of these."""
        if not count:
            return self
        order = self.order or tuple(device.uuid for device in sorted(self.devices, key=lambda device: device.index))
        lost = set(order[-count:])
        kept = [each for each in self.devices if each.uuid not in lost and each.parent not in lost]
        left = {device.uuid for device in kept}
        return replace(self, devices=kept, near={uuid: cores for uuid, cores in self.near.items() if uuid in left})


@dataclass(frozen=True)
class DeviceShare:
    """What a container was given of a device, in milli-GPU; a MIG device is always given whole."""

    device: GpuDevice
    milli: int

    @property
    def is_whole(self) -> bool:
        """Whether nobody else uses the device."""
        return self.milli == MILLI or bool(self.device.parent)

    @property
    def memory_mib(self) -> int:
        """Memory that the share may use, in MiB."""
        return self.device.memory_mib if self.is_whole else memory_limit(self.device.memory_mib, self.milli)


@dataclass(frozen=True)
class GpuHealth:
    """The health of one GPU; what it cannot tell is None. `silent` says why it does not answer, and then no more is.

    `bus` is where the kernel finds it. `remapping` says what its memory needs: nothing, a reset, or another GPU.
    `links` are the NVLinks that are up, of `all_links`.
    """

    silent: str = ""
    bus: str = ""
    temperature_c: int | None = None
    uncorrected: int | None = None
    needs_reset: bool = False
    needs_replacement: bool = False
    slowed: tuple[str, ...] = ()
    links: int = 0
    all_links: int = 0


@dataclass(frozen=True)
class Needs:
    """What a container needs beside its image: `devices` are device nodes, `nvidia` the ids of devices that NVIDIA's
    container runtime hands out, and `environment` stands above that of the user.
    """

    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    nvidia: tuple[str, ...] = ()

    @staticmethod
    def together(parts: Iterable[Needs]) -> Needs:
        """Return all that several parts need."""
        mounts, devices, nvidia = list[Mount](), list[str](), list[str]()
        environment: dict[str, str] = {}
        for part in parts:
            mounts += part.mounts
            environment.update(part.environment)
            devices += part.devices
            nvidia += part.nvidia
        return Needs(tuple(dict.fromkeys(mounts)), environment, tuple(dict.fromkeys(devices)), tuple(nvidia))
