"""Processes of the kit that outlive what has started them, found by a variable that all of them have inherited."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

MARK = "PENSTOCK_CHECK"
"""The variable that marks them; its value is a folder of the run."""
LOOKS = 10
"""So often a process has arguments and no environment before it is believed to have none."""
GRACE_S = 2.0
"""The longest that what was ended may take to go."""


def remains(folder: Path) -> dict[int, str]:
    """Return numbers and names of the processes that are marked with a run's folder."""
    found, mark = {}, f"{MARK}={folder}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in _environment(process).split(b"\0"):
                found[int(process.name)] = (process / "comm").read_text().strip()
    return found


def _environment(process: Path) -> bytes:
    until, looks = time.monotonic() + GRACE_S, 0
    while not (environment := (process / "environ").read_bytes()) and looks < LOOKS and time.monotonic() < until:
        # execve(2) shows the program before its arguments and its environment; what has ended shows no program
        (process / "exe").readlink()
        # the next program may have begun since: that there are arguments and no environment is not believed at once
        looks += bool((process / "cmdline").read_bytes())
        time.sleep(0.001)
    return environment


def clear(folder: Path) -> list[str]:
    """End what is still there after a moment, and return the names of it."""
    until = time.monotonic() + GRACE_S
    while (left := remains(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    end(folder)
    return sorted(left.values())


def end(folder: Path) -> None:
    """End all of them at once."""
    for pid in remains(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
