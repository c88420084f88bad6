"""The last release as it was: its API and agent, kept beside this file, run by the interpreter of this one.

A release keeps its own there when it is out, as `docs/developing.md` says.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests import once

KEPT = Path(__file__).with_suffix(".tar.xz")
NOT_KNOWN = ("PENSTOCK_AGENT_PACKAGES_FOLDER", "PENSTOCK_AGENT_PACKAGE_INDEX")
"""Settings of this release that the last one refuses: no deploy of that one has written them."""


def tree() -> Path:
    """Return a folder with the packages of the last release."""
    return once.once("last-release", _unpack)


def start(
    words: Sequence[str | Path],
    env: Mapping[str, str],
    stdin: IO[Any] | int | None = subprocess.DEVNULL,
    stdout: IO[Any] | int | None = subprocess.DEVNULL,
    stderr: IO[Any] | int | None = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a program of the last release, as `forks.start` does one of this tree."""
    program, *arguments = (str(word) for word in words if word != sys.executable)
    known = {name: value for name, value in env.items() if name not in NOT_KNOWN}
    environment = {**known, "PYTHONPATH": str(tree()), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, program, *arguments], cwd=tree(), env=environment, stdin=stdin, stdout=stdout, stderr=stderr
    )


def _unpack(folder: Path) -> None:
    subprocess.run(["tar", "-x", "-C", str(folder), "-f", str(KEPT)], check=True)
