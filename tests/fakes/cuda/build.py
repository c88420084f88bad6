"""The build of the fake libraries against NVIDIA's headers, whole: what they do not model answers "not supported"."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

SOURCES = Path(__file__).parent
FLAGS = ("-std=gnu17", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
_TYPEDEF = re.compile(r"PFN_(cu[A-Z]\w*?)_v(\d+)(_ptds|_ptsz)?\)")
STATE = ("settings.c", "machine.c", "slices.c", "groups.c")
DRIVER = (
    "driver.c",
    "contexts.c",
    "greens.c",
    "memory.c",
    "slabs.c",
    "arrays.c",
    "pools.c",
    "virtual.c",
    "work.c",
    "launches.c",
    "modules.c",
    "graph_nodes.c",
    "graphs.c",
    "nodes.c",
    "captures.c",
    "mps.c",
    "lost.c",
)
NVML = ("nvml.c", "nvml_devices.c", "nvml_health.c", "nvml_topology.c")


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
    _build_driver(folder, state)
    missing = declared("nvml.h", "nvml") - _defined(nvml)
    if old_driver:
        missing -= {"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"}
    rest = folder / "nvml_rest.c"
    rest.write_text("\n".join(_nvml_rest(sorted(missing))))
    link(folder / "libnvidia-ml.so.1", [*state, *nvml, _compile(folder, rest)])
    return folder


def _build_driver(folder: Path, state: Iterable[Path]) -> None:
    objects = [_compile(folder, name) for name in DRIVER]
    entries = driver_entries()
    rest = folder / "driver_rest.c"
    rest.write_text("\n".join(_driver_rest(entries, _defined(objects))))
    link(folder / "libcuda.so.1", [*state, *objects, _compile(folder, rest)])


def link(library: Path, objects: Iterable[Path], flags: Sequence[str] = ()) -> None:
    """Make a shared library of objects, with its file name as its soname."""
    command: list[str | Path] = [
        "gcc",
        "-shared",
        "-pthread",
        f"-Wl,-soname,{library.name},-Bsymbolic",
        *flags,
        "-o",
        library,
        *objects,
    ]
    subprocess.run(command, check=True)


def stand_in(folder: Path) -> Path:
    """Make a library with the driver's name and functions that do nothing, to link programs where there is none."""
    folder.mkdir()
    library, source = folder / "libcuda.so.1", folder / "functions.c"
    source.write_text("\n".join(f"void {name}(void) {{}}" for name in sorted(declared("cuda.h", "cu"))))
    link(library, [source])
    return library


def _compile(folder: Path, source: str | Path, flags: Sequence[str] = ()) -> Path:
    made = folder / f"{Path(source).stem}.o"
    command: list[str | Path] = [
        "gcc",
        "-c",
        *FLAGS,
        *flags,
        "-isystem",
        headers(),
        "-I",
        SOURCES,
        "-o",
        made,
        SOURCES / source,
    ]
    subprocess.run(command, check=True)
    return made


def declared(header: str, prefix: str) -> set[str]:
    """Names of the functions of a header, those of its old versions included."""
    switches = ["-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-D__CUDA_API_VERSION_INTERNAL"]
    command: list[str | Path] = ["gcc", "-E", "-P", *switches, headers() / header]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(rf"\b({prefix}[A-Z]\w*)\s*\((?=[^;()]*(?:\([^;()]*\)[^;()]*)*\)\s*;)", text))


def _defined(objects: Iterable[Path]) -> set[str]:
    command: list[str | Path] = ["nm", "--defined-only", "-g", "-P", *objects]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[0] for line in text.splitlines() if " " in line}


@dataclass(frozen=True, order=True)
class Entry:
    """One form of a driver function: `name` is its symbol in the library."""

    symbol: str
    version: int
    variant: str
    name: str


def driver_entries() -> list[Entry]:
    """Every function of NVIDIA's typedefs: the n-th version of a symbol is the n-th of its declared names."""
    versions: dict[tuple[str, str], set[int]] = {}
    for header in sorted(headers().glob("cuda*Typedefs.h")):
        for symbol, version, variant in _TYPEDEF.findall(header.read_text()):
            versions.setdefault((symbol, variant), set()).add(int(version))
    known_names = declared("cuda.h", "cu")
    found = []
    for (symbol, variant), known in versions.items():
        made = [f"{symbol}{f'_v{index}' if index > 1 else ''}{variant}" for index in range(1, len(known) + 1)]
        forms = re.compile(rf"{symbol}(?:_v(\d+))?{variant}")
        matches = sorted((int(match[1] or 1), match[0]) for match in map(forms.fullmatch, known_names) if match)
        names = [name for _, name in matches] or made
        found += [Entry(symbol, *pair) for pair in zip(sorted(known), [variant] * len(known), names, strict=True)]
    # CUDA 12 gave the plain name to this one
    return sorted([*found, Entry("cuGraphInstantiate", 12000, "", "cuGraphInstantiateWithFlags")])


def _driver_rest(entries: Sequence[Entry], defined: set[str]) -> Iterable[str]:
    """Functions that are not modelled, per-thread forms that jump to the others, and the table of all."""
    yield '#include "driver.h"\n'
    for name in sorted({entry.name for entry in entries} - defined):
        plain = re.sub(r"_pt(ds|sz)$", "", name)
        if plain != name and plain in defined:
            yield f'__asm__(".globl {name}\\n.type {name}, @function\\n{name}: " JUMP " {plain}\\n");'
        else:
            code = 0 if re.match(r"cu(Memcpy|Memset|MemAdvise|MemPrefetch|Profiler)", name) else 801
            yield f'int {name}_(void) __asm__("{name}");\nint {name}_(void)\n{{\n    return {code};\n}}'
    for entry in entries:
        yield f'extern char entry_{entry.name}[] __asm__("{entry.name}");'
    yield "const driver_entry driver_entries[] = {"
    for entry in entries:
        yield f'    {{"{entry.symbol}", {entry.version}, {int(bool(entry.variant))}, entry_{entry.name}}},'
    yield "    {NULL, 0, 0, NULL},\n};\n"


def _nvml_rest(names: Iterable[str]) -> Iterable[str]:
    """Definitions of functions that are not modelled: what sets something succeeds, what asks is not supported."""
    for name in names:
        code = 0 if re.match(r"nvml\w*?(Set|Clear|Reset|Create|Destroy|Remove)[A-Z]", name) else 3
        yield f"int {name}(void);\nint {name}(void)\n{{\n    return {code};\n}}\n"
