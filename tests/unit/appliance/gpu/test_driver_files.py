"""What a container gets of a driver: a node's files as Debian 12 and NVIDIA's own packages lay them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.gpu import driver_files
from common.errors import UnavailableError
from tests.unit.appliance.gpu.samples import GPU, SECOND, SLICE

VERSION = "535.309.01"
# /proc/driver/nvidia/gpus/*/information, as NVIDIA's README of the driver shows it
INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 120
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.61.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
Bus Location: \t {bus}
Device Minor: \t {minor}
GPU Excluded:\t No
"""
DEBIAN, NVIDIA, RED_HAT = "usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/x86_64-linux-gnu", "usr/lib64"
# the library, and the number of the link beside it: some have none
LIBRARIES = {"libcuda.so": "1", "libnvidia-ml.so": "1", "libnvcuvid.so": "1", "libnvidia-pkcs11-openssl3.so": ""}


def node(root: Path, folder: str = DEBIAN, version: str = VERSION) -> Path:
    """A node with two GPUs, of which the second has the first device node."""
    write(root / "sys/module/nvidia/version", VERSION + "\n")
    for uuid, bus, minor in (("GPU-1", "0000:01:00.0", 1), ("GPU-2", "0000:02:00.0", 0)):
        text = INFORMATION.format(uuid=uuid, bus=bus, minor=minor)
        write(root / f"proc/driver/nvidia/gpus/{bus}/information", text)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1"):
        write(root / "dev" / name, "")
    for name, number in LIBRARIES.items():
        write(root / folder / f"{name}.{version}", "")
        if number:
            (root / folder / f"{name}.{number}").symlink_to(f"{name}.{version}")
    write(root / "usr/lib/nvidia/current/nvidia-smi", "")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/nvidia-smi").symlink_to("../lib/nvidia/current/nvidia-smi")
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_container_gets_the_nodes_of_its_gpus_and_of_no_other(tmp_path: Path) -> None:
    root = node(tmp_path)
    shared = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    assert driver_files.needs([GPU], root).devices == (*shared, "/dev/nvidia1")
    assert driver_files.needs([GPU, SECOND], root).devices == (*shared, "/dev/nvidia0", "/dev/nvidia1")
    assert driver_files.needs([GPU], root).nvidia == (), "Docker's own way of GPUs would fail without the toolkit"


@pytest.mark.parametrize("folder", [DEBIAN, NVIDIA, RED_HAT])
def test_libraries_stand_under_the_names_that_programs_load_them_by(tmp_path: Path, folder: str) -> None:
    mounts = driver_files.needs([GPU], node(tmp_path, folder)).mounts
    assert all(mount.read_only for mount in mounts)
    given = {mount.target: mount.source for mount in mounts}
    for loader in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        assert given.pop(f"{loader}/libcuda.so.1") == f"/{folder}/libcuda.so.{VERSION}"
        assert given.pop(f"{loader}/libcuda.so") == f"/{folder}/libcuda.so.{VERSION}"
        assert given.pop(f"{loader}/libnvidia-ml.so.1") == f"/{folder}/libnvidia-ml.so.{VERSION}"
        assert given.pop(f"{loader}/libnvcuvid.so.1") == f"/{folder}/libnvcuvid.so.{VERSION}"
        name = f"libnvidia-pkcs11-openssl3.so.{VERSION}"
        assert given.pop(f"{loader}/{name}") == f"/{folder}/{name}"
    assert given == {"/usr/bin/nvidia-smi": "/usr/lib/nvidia/current/nvidia-smi"}


def test_a_driver_in_a_folder_of_its_own_is_found_where_the_links_to_it_lead(tmp_path: Path) -> None:
    root = node(tmp_path, "usr/local/nvidia/lib64")
    (root / "usr/lib").mkdir(exist_ok=True)
    for name, number in LIBRARIES.items():
        if number:
            (root / f"usr/lib/{name}.{number}").symlink_to(f"../local/nvidia/lib64/{name}.{number}")
    (root / "usr/bin/nvidia-smi").unlink()
    # a folder of that name is none
    (root / "usr/bin/nvidia-smi").mkdir()
    write(root / "usr/local/nvidia/bin/nvidia-smi", "")
    given = {mount.target: mount.source for mount in driver_files.needs([GPU], root).mounts}
    for loader in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        for name in ("libcuda.so", "libnvidia-ml.so", "libnvcuvid.so"):
            assert given[f"{loader}/{name}.1"] == f"/usr/local/nvidia/lib64/{name}.{VERSION}"
        name = f"libnvidia-pkcs11-openssl3.so.{VERSION}"
        assert given[f"{loader}/{name}"] == f"/usr/local/nvidia/lib64/{name}"
    assert given["/usr/bin/nvidia-smi"] == "/usr/local/nvidia/bin/nvidia-smi"


def test_libraries_of_another_version_than_the_modules_are_not_given(tmp_path: Path) -> None:
    root = node(tmp_path, version="535.261.03")
    with pytest.raises(UnavailableError, match=r"libcuda\.so\.535\.309\.01 of NVIDIA's driver is not on this node"):
        driver_files.needs([GPU], root)


@pytest.mark.parametrize(
    ("absent", "reason"),
    [
        ("dev/nvidia-uvm", "nvidia-uvm of NVIDIA's driver is not on this node"),
        ("dev/nvidia1", "nvidia1 of NVIDIA's driver is not on this node"),
        ("sys/module/nvidia/version", "NVIDIA's driver is not loaded"),
        ("proc/driver/nvidia/gpus/0000:01:00.0/information", "the driver does not know the GPU GPU-1"),
    ],
)
def test_what_is_absent_is_named_before_a_container_starts_without_it(tmp_path: Path, absent: str, reason: str) -> None:
    root = node(tmp_path)
    (root / absent).unlink()
    with pytest.raises(UnavailableError, match=reason):
        driver_files.needs([GPU], root)


def test_mig_devices_want_the_toolkit(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"MIG-1 is handed out by NVIDIA's container toolkit alone"):
        driver_files.needs([SLICE], node(tmp_path))
