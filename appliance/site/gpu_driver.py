"""The driver of a worker's GPUs as the site file says it, and the packages that it is made of. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import Field

from common.places import Path
from common.strict import StrictModel

OLDEST_BRANCH = 470
"""The oldest branch of the driver that parts of GPUs work with."""
OLDEST_OPEN_BRANCH = 515
"""The first branch whose kernel modules there are with open sources."""


class DriverSource(StrEnum):
    """Whose packages the driver comes from: the distribution's, NVIDIA's, or nobody's, for it was there before."""

    DISTRIBUTION = "distribution"
    NVIDIA = "nvidia"
    PREINSTALLED = "preinstalled"


class GpuDriver(StrictModel):
    """The driver of a worker: `branch` is the first number of its version.

    Of the `kernel` of the bundle, image and headers are installed, too; that which runs needs its own headers in a
    bundle. With `reboot` a deploy may restart the node where nothing else lets the driver run.
    """

    source: DriverSource = DriverSource.DISTRIBUTION
    branch: int | None = Field(default=None, ge=OLDEST_BRANCH, lt=1000)
    modules: Literal["open", "proprietary"] = "proprietary"
    kernel: Literal["running", "bundle"] = "running"
    fabric_manager: bool = False
    peermem: bool = False
    container_toolkit: bool = False
    reboot: bool = False


@dataclass(frozen=True)
class Packages:
    """Debian packages of a driver: those in `tuple_` are of one upstream version, its kernel modules the first."""

    tuple_: list[str]
    others: list[str]

    @property
    def all(self) -> list[str]:
        """Return all of them."""
        return self.tuple_ + self.others


def packages(driver: GpuDriver) -> Packages:
    """Return what a driver is made of; nothing where it was there before."""
    if driver.source is DriverSource.PREINSTALLED:
        return Packages([], [])
    is_open = driver.modules == "open"
    if driver.source is DriverSource.DISTRIBUTION:
        together = ["nvidia-open-kernel-dkms" if is_open else "nvidia-kernel-dkms", "libcuda1", "libnvidia-ml1"]
        together += ["libnvidia-cfg1", "libnvcuvid1", "libnvidia-encode1", "nvidia-cuda-mps", "nvidia-smi"]
        # these bear versions of their own, and fit all of a branch
        others = ["nvidia-modprobe", "nvidia-persistenced"]
    else:
        together = ["nvidia-kernel-open-dkms" if is_open else "nvidia-kernel-dkms", "nvidia-driver-cuda"]
        others = ["nvidia-modprobe", "nvidia-persistenced"]
    if driver.fabric_manager:
        together.append(f"nvidia-fabricmanager-{driver.branch}")
    if driver.container_toolkit:
        others.append("nvidia-container-toolkit")
    if driver.kernel == "bundle":
        others += ["linux-headers-amd64", "linux-image-amd64"]
    return Packages(together, others)


def findings(driver: GpuDriver, path: Path, *, has_infiniband: bool) -> Iterator[tuple[Path, str, str]]:
    """Yield what does not fit together in the driver at `path`: where, what is wrong, and the hint."""
    if driver.source is DriverSource.PREINSTALLED:
        for field in ("modules", "kernel", "fabric_manager", "peermem", "container_toolkit", "reboot"):
            if field in driver.model_fields_set:
                yield (*path, field), "a preinstalled driver is left as it is", f"remove {field}"
    elif driver.branch is None:
        yield path, "the driver has no branch", "add the first number of its version, such as `branch: 535`"
    elif driver.modules == "open" and driver.branch < OLDEST_OPEN_BRANCH:
        reason = f"branch {driver.branch} has no open kernel modules"
        yield (*path, "modules"), reason, f"write `proprietary`, or take branch {OLDEST_OPEN_BRANCH} or newer"
    if driver.peermem and not has_infiniband:
        reason = "peermem lets InfiniBand adapters reach the memory of GPUs, and the node has no ib_address"
        yield (*path, "peermem"), reason, "add the node's ib_address, or remove peermem"
