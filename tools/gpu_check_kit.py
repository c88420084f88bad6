"""Pack the kit that judges GPU shares on a real card: `tools/gpu_check_kit.py FOLDER` makes one archive in it.

On the machine with the card it needs Python, a driver, and nothing that is downloaded: the archive has the compiled
library, NVML's binding, and the modules of the product that the checks use.
"""

from __future__ import annotations

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path

from tests.fakes.cuda.clients import build_client

ROOT = Path(__file__).parents[1]
TOP = "penstock-gpu-check"
PRODUCT = (
    "appliance/__init__.py",
    "appliance/gpu/__init__.py",
    "appliance/gpu/activity.py",
    "appliance/gpu/cgroups.py",
    "appliance/gpu/contention.py",
    "appliance/gpu/layout.py",
    "appliance/gpu/share_files.py",
    "appliance/gpu/timetable.py",
    "common/__init__.py",
    "common/errors.py",
    "common/gpu/__init__.py",
    "common/gpu/kinds.py",
    "common/gpu/units.py",
    "tests/__init__.py",
    "LICENSE",
)

CHECK = '''\
"""Judges GPU shares on the card of this machine; `python3 check.py --help` says how."""
import runpy
import sys

if sys.version_info < (3, 10):
    sys.stderr.write("error: this is Python %d.%d. Hint: take 3.10 or newer\\n" % sys.version_info[:2])
    sys.exit(2)
runpy.run_module("tests.gpu", run_name="__main__", alter_sys=True)
'''
READ_ME = """\
GPU shares on a real card
=========================

    python3 check.py            # ten minutes at most; as root it judges more (containers, MPS, limits of the driver)
    python3 check.py --help

Needed: an NVIDIA GPU that nobody else uses, with 6 GiB free, its driver, Python 3.10 or newer. No network, no compiler,
no CUDA toolkit. The library for GPU shares comes with it and is loaded into the programs of the kit alone; nothing is
installed, and no program stays behind.

It leaves result/result.json and result/result.html. Each figure stands beside what was expected and its tolerance; what
could not be judged says why. Exit codes: 0 all that was judged is within its tolerance, 1 something is not, 2 nothing
could be judged.
"""


def main(target: Path) -> Path:
    """Build the library, make the archive and return its path."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        return pack(target, _build(Path(folder)))


def pack(target: Path, compiled: Sequence[Path]) -> Path:
    """Make the archive with these libraries and programs and return its path."""
    machine = platform.machine()
    archive = target / f"{TOP}-{machine}.tar.gz"
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w:gz") as packed:
        for name, content in _files(compiled):
            entry = tarfile.TarInfo(f"{TOP}/{name}")
            entry.size, entry.mode = len(content), 0o755 if name.startswith("lib/") else 0o644
            packed.addfile(entry, io.BytesIO(content))
    partial.replace(archive)
    return archive


def _build(folder: Path) -> list[Path]:
    """Build the library as sites have it, and as one that reads its paths from variables, and the client of checks."""
    shim = ROOT / "appliance/gpu/shim"
    command = ["make", "-s", "-C", str(shim), f"PYTHON={sys.executable}", f"OUT={folder}", "release", "test"]
    subprocess.run(command, check=True)
    return [folder / "libpenstock-gpu.so", folder / "libpenstock-gpu-test.so", build_client(folder)]


def _files(compiled: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield names in the archive and contents."""
    yield from ((f"lib/{each.name}", each.read_bytes()) for each in compiled)
    yield from ((name, (ROOT / name).read_bytes()) for name in PRODUCT)
    for module in sorted((ROOT / "tests/gpu").glob("*.py")):
        yield f"tests/gpu/{module.name}", module.read_bytes()
    yield "pynvml.py", Path(str(distribution("nvidia-ml-py").locate_file("pynvml.py"))).read_bytes()
    yield "check.py", CHECK.encode()
    yield "README", READ_ME.encode()


if __name__ == "__main__":
    made = main(Path(sys.argv[1]))
    print(f"{made}: {made.stat().st_size / 1e6:.1f} MB")
