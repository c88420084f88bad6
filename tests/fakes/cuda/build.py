"""Builds the fake libraries against NVIDIA's headers, whole: what they do not model answers "not supported"."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

SOURCES = Path(__file__).parent
FLAGS = ("-std=gnu17", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
STATE = ("settings.c", "machine.c", "groups.c")
NVML = ("nvml.c", "nvml_devices.c", "nvml_topology.c")


def headers() -> Path:
    """Return the folder of cuda.h and nvml.h, which come with the wheels of the development group."""
    spec = find_spec("nvidia")
    for base in spec.submodule_search_locations or () if spec else ():
        for folder in sorted(Path(base).glob("*/include")):
            if (folder / "cuda.h").exists() and (folder / "nvml.h").exists():
                return folder
    raise FileNotFoundError("cuda.h and nvml.h: install the wheels nvidia-cuda-runtime and nvidia-nvml-dev")


def build(folder: Path, *, old_driver: bool = False) -> Path:
    """Compile the libraries into a folder and return the folder, which processes name in LD_LIBRARY_PATH.

    `old_driver` leaves away the functions of NVML that came with driver 615, where they otherwise answer by the
    version in FAKE_GPU_DRIVER.
    """
    with_old = ["-DOLD_DRIVER"] if old_driver else []
    state = [_compile(folder, name) for name in STATE]
    nvml = [_compile(folder, name, with_old) for name in NVML]
    link(folder / "libmachine.so", state)
    missing = _declared("nvml.h", "nvml") - _defined(nvml)
    if old_driver:
        missing -= {"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"}
    rest = folder / "nvml_rest.c"
    rest.write_text("\n".join(_nvml_rest(sorted(missing))))
    link(folder / "libnvidia-ml.so.1", [*state, *nvml, _compile(folder, rest)])
    return folder


def link(library: Path, objects: Iterable[Path], flags: Sequence[str] = ()) -> None:
    """Make a shared library of objects, with its file name as its soname."""
    command = ["gcc", "-shared", "-pthread", f"-Wl,-soname,{library.name},-Bsymbolic", *flags, "-o", library, *objects]
    subprocess.run(command, check=True)


def _compile(folder: Path, source: str | Path, flags: Sequence[str] = ()) -> Path:
    made = folder / f"{Path(source).stem}.o"
    command = ["gcc", "-c", *FLAGS, *flags, "-isystem", headers(), "-I", SOURCES, "-o", made, SOURCES / source]
    subprocess.run(command, check=True)
    return made


def _declared(header: str, prefix: str) -> set[str]:
    """Names of the functions of a header, those of its old versions included."""
    switches = ["-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-D__CUDA_API_VERSION_INTERNAL"]
    command = ["gcc", "-E", "-P", *switches, headers() / header]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(rf"\b({prefix}[A-Z]\w*)\s*\((?=[^;()]*(?:\([^;()]*\)[^;()]*)*\)\s*;)", text))


def _defined(objects: Iterable[Path]) -> set[str]:
    command = ["nm", "--defined-only", "-g", "-P", *objects]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[0] for line in text.splitlines() if " " in line}


def _nvml_rest(names: Iterable[str]) -> Iterable[str]:
    """Definitions of functions that are not modelled: what sets something succeeds, what asks is not supported."""
    for name in names:
        code = 0 if re.match(r"nvml\w*?(Set|Clear|Reset|Create|Destroy|Remove)[A-Z]", name) else 3
        yield f"int {name}(void);\nint {name}(void)\n{{\n    return {code};\n}}\n"
