"""A kind of accelerator that is no NVIDIA GPU: found by the entry point of a package that a test installs in a folder.

FAKE_ACCELERATOR_DEVICES    how many devices there are (default 1); with NVML, its GPUs are the devices instead
FAKE_ACCELERATOR_LIBRARIES  a folder that containers mount and load libraries from
FAKE_ACCELERATOR_STATE      a folder that containers mount and may write to: the fake machine's state
FAKE_ACCELERATOR_NVML       1 where the devices are those of NVML
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from appliance.gpu import nvml
from appliance.gpu.devices import Gpus, Needs
from common.gpu.kinds import Enforcement
from common.protocol import GpuDevice, Mount

NAME = "fake"
ENTRY = f"{NAME} = tests.fakes.accelerator:Fake"


class Fake:
    """The fake kind."""

    name = NAME
    kinds = frozenset({Enforcement.DRIVER, Enforcement.SHIM, Enforcement.NONE})

    def discover(self) -> Gpus:
        if os.environ.get("FAKE_ACCELERATOR_NVML"):
            return nvml.discover()
        count = int(os.environ.get("FAKE_ACCELERATOR_DEVICES", "1"))
        return Gpus([GpuDevice(index=n, uuid=f"FAKE-{n}", model="Fake", memory_mib=8192) for n in range(count)])

    def needs(self, devices: Sequence[GpuDevice]) -> Needs:
        visible = {"FAKE_VISIBLE_DEVICES": ",".join(str(device.index) for device in devices)}
        if not (libraries := os.environ.get("FAKE_ACCELERATOR_LIBRARIES")):
            return Needs(environment=visible)
        state = os.environ["FAKE_ACCELERATOR_STATE"]
        machine = {name: value for name, value in os.environ.items() if name.startswith("FAKE_GPU_")}
        return Needs(
            mounts=(
                Mount(source=libraries, target=libraries, read_only=True),
                Mount(source=state, target=state),
            ),
            environment={**visible, **machine, "LD_LIBRARY_PATH": libraries},
        )


def install(folder: Path, entry: str = ENTRY) -> None:
    """Write what an installed package says of itself into a folder of PYTHONPATH."""
    described = folder / "penstock_fake_accelerator-1.0.dist-info"
    described.mkdir(parents=True, exist_ok=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock-fake-accelerator\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(f"[penstock.accelerators]\n{entry}\n")
