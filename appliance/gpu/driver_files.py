"""Files of NVIDIA's driver that containers need on nodes without its toolkit: device nodes, libraries, programs.

All is given as devices and mounts, which every Docker takes. A library stands in the container under the name that
programs load it by, where the loaders of Debian's and of Red Hat's family look without a cache of their own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from appliance.gpu.devices import Needs
from common.errors import UnavailableError
from common.protocol import GpuDevice, Mount

TOOLKIT = "nvidia-container-runtime-hook"
"""The program of NVIDIA's toolkit by which Docker hands out GPUs."""
LIBRARIES = (
    *("libcuda.so", "libcudadebugger.so", "libnvcuvid.so", "libnvidia-allocator.so", "libnvidia-cfg.so"),
    *("libnvidia-encode.so", "libnvidia-gpucomp.so", "libnvidia-ml.so", "libnvidia-nvvm.so", "libnvidia-nvvm70.so"),
    *("libnvidia-opencl.so", "libnvidia-pkcs11-openssl3.so", "libnvidia-pkcs11.so", "libnvidia-ptxjitcompiler.so"),
)
UNVERSIONED = ("libcuda.so",)
"""Libraries that programs load by the name without a number, too."""
PROGRAMS = ("nvidia-smi", "nvidia-debugdump")
FOLDERS = ("usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib")
"""Where the libraries of a driver lie on nodes, or links that lead to where they do."""
LOADERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
"""Where the loaders of containers look."""
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


def has_toolkit() -> bool:
    """Return whether Docker can be asked for GPUs by NVIDIA's toolkit."""
    return shutil.which(TOOLKIT) is not None


def needs(devices: Sequence[GpuDevice], root: Path = Path("/")) -> Needs:
    """Return what a container needs to use these GPUs; `root` is the node's.

    Raises UnavailableError where the driver does not run, where one of its files is absent, and for MIG devices.
    """
    if slices := [device.uuid for device in devices if device.parent]:
        raise UnavailableError(
            f"the MIG device {slices[0]} is handed out by NVIDIA's container toolkit alone",
            where="GPUs",
            hint="install the toolkit: `container_toolkit: true` at the node's driver in the site file",
        )
    version = _text(root / "sys/module/nvidia/version")
    minors = _minors(root)
    if absent := [device.uuid for device in devices if device.uuid not in minors]:
        raise UnavailableError(
            f"the driver does not know the GPU {absent[0]}",
            where="/proc/driver/nvidia/gpus",
            hint="look at `nvidia-smi` on the node; the driver may have to be loaded again",
        )
    nodes = [*SHARED_NODES, *sorted(f"nvidia{minors[device.uuid]}" for device in devices)]
    _require([root / "dev" / node for node in nodes])
    return Needs(
        mounts=(*_libraries(root, version), *_programs(root)),
        devices=tuple(f"/dev/{node}" for node in nodes),
    )


def _minors(root: Path) -> dict[str, int]:
    """Return the numbers of the device nodes by the ids of GPUs, as the driver tells them."""
    found = {}
    for told in root.glob("proc/driver/nvidia/gpus/*/information"):
        text = _text(told)
        uuid = re.search(r"^GPU UUID:\s+(\S+)$", text, re.MULTILINE)
        minor = re.search(r"^Device Minor:\s+(\d+)$", text, re.MULTILINE)
        if uuid and minor:
            found[uuid[1]] = int(minor[1])
    return found


def _libraries(root: Path, version: str) -> Iterator[Mount]:
    """Yield the mounts of the driver's libraries; those of another version do not work with its kernel modules."""
    folders = _folders(root)
    found = {name: path for name in LIBRARIES if (path := _library(folders, name, version))}
    absent = [name for name in ("libcuda.so", "libnvidia-ml.so") if name not in found]
    _require([root / FOLDERS[1] / f"{name}.{version}" for name in absent])
    for name, path in found.items():
        names = [f"{name}.{_interface(path, name)}", *([name] if name in UNVERSIONED else [])]
        for folder in LOADERS:
            for each in names:
                yield Mount(source=_on_node(root, path), target=f"{folder}/{each}", read_only=True)


def _folders(root: Path) -> list[Path]:
    """Return the folders in which a driver's libraries may lie, such as one of its own that only links lead to."""
    usual = [root / folder for folder in FOLDERS]
    links = [folder / "libcuda.so.1" for folder in usual]
    return [*usual, *(link.resolve().parent for link in links if link.is_symlink() and link.exists())]


def _library(folders: Iterable[Path], name: str, version: str) -> Path | None:
    paths = (folder / f"{name}.{version}" for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def _interface(path: Path, name: str) -> str:
    """Return the number that programs load a library by: that of the link beside it, or the version of the driver."""
    links = (link.name.removeprefix(f"{name}.") for link in path.parent.glob(f"{name}.*") if link != path)
    return next((number for number in sorted(links) if number.isdecimal()), path.name.removeprefix(f"{name}."))


def _programs(root: Path) -> Iterator[Mount]:
    folders = [root / "usr/bin", *(folder.parent / "bin" for folder in _folders(root))]
    for name in PROGRAMS:
        path = next((path for folder in folders if (path := folder / name).is_file()), None)
        if path:
            yield Mount(source=_on_node(root, path.resolve()), target=f"/usr/bin/{name}", read_only=True)


def _require(paths: Sequence[Path]) -> None:
    if absent := [path for path in paths if not path.exists()]:
        raise UnavailableError(
            f"{absent[0].name} of NVIDIA's driver is not on this node",
            where=str(absent[0].parent),
            hint="restart penstock-gpu-devices.service, or install the driver anew",
        )


def _on_node(root: Path, path: Path) -> str:
    return f"/{path.relative_to(root)}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise UnavailableError(
            f"NVIDIA's driver is not loaded: {error.strerror}", where=str(path), hint="look at `dmesg` on the node"
        ) from error
