"""Builds the fake NVML library, which a process finds by LD_LIBRARY_PATH."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")


def build(folder: Path) -> Path:
    """Compile the library into a folder and return the folder."""
    library = folder / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", library, SOURCE], check=True)
    return folder
