"""The build of the library as a part of its wheel's.

An environment that installs the wheel has the library as `lib/libpenstock-gpu.so`. `PENSTOCK_WHEEL_MACHINE` names
another machine than this one to build for, such as `aarch64`; Debian's cross compiler of that machine must be there.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "libpenstock-gpu.so"


class Library(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles with the recipe that developers use, and marks the wheel for the machine that it is for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library and name it among the wheel's data; a compiler that fails ends the build with its words."""
        if version == "editable":
            raise ValueError("an editable wheel would have no library; build an ordinary one")
        self._folder = tempfile.TemporaryDirectory()
        machine = os.environ.get("PENSTOCK_WHEEL_MACHINE") or platform.machine()
        compiler = [] if machine == platform.machine() else [f"CC={machine}-linux-gnu-gcc"]
        command = ["make", "--no-print-directory", "-C", self.root, f"PYTHON={sys.executable}", *compiler]
        if code := subprocess.run([*command, f"OUT={self._folder.name}"], check=False).returncode:
            # without a traceback: the end of what a build says is all that people are shown of it
            sys.exit(code)
        build_data["shared_data"][str(Path(self._folder.name, LIBRARY))] = f"lib/{LIBRARY}"
        build_data["pure_python"] = False
        # it uses nothing of the C library that is newer
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the library; the wheel has it."""
        self._folder.cleanup()
