"""GPUs of a node that belong to others: the last ones by their device files, with whatever they were cut into."""

from __future__ import annotations

from appliance.gpu.devices import Gpus
from common.protocol import GpuDevice
from tests.unit.appliance.gpu.samples import GPU, SECOND, SLICE

CUT = SLICE.parent
NEAR = {device.uuid: frozenset({0}) for device in (GPU, SECOND, SLICE)}


def left(gpus: Gpus, count: int) -> list[GpuDevice]:
    found = gpus.without_last(count)
    assert found.near.keys() == {device.uuid for device in found.devices} & gpus.near.keys()
    return found.devices


def test_a_cut_gpu_counts_and_goes_with_its_slices() -> None:
    gpus = Gpus([GPU, SECOND, SLICE], NEAR, order=(GPU.uuid, SECOND.uuid, CUT))
    assert left(gpus, 0) == [GPU, SECOND, SLICE]
    assert left(gpus, 1) == [GPU, SECOND]
    assert left(gpus, 2) == [GPU]


def test_the_numbers_of_device_files_say_which_are_the_last() -> None:
    """Slurm gives GPUs by their files; NVML counts them in another order."""
    assert left(Gpus([GPU, SECOND], NEAR, order=(SECOND.uuid, GPU.uuid)), 1) == [SECOND]


def test_without_device_files_they_go_by_their_order() -> None:
    assert left(Gpus([GPU, SECOND]), 1) == [GPU]
