"""The boot of this machine: what tells one run of it from the next, whatever its clock says."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")
_START_TIME = 19
"""Of the words of a process's `stat` after its name: when it started, in ticks since the kernel did."""


def boot(proc: Path = _PROC) -> str:
    """Return another text after each start of this machine, of the lab's too, which shares its kernel with others."""
    kernel = (proc / "sys/kernel/random/boot_id").read_text().strip()
    first = (proc / "1/stat").read_text().rpartition(")")[2].split()[_START_TIME]
    return f"{kernel}-{first}"
