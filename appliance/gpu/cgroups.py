"""Control groups of processes, of both versions: which container a process is in, and where its group lies."""

from __future__ import annotations

import re
from pathlib import Path

from common.errors import UnavailableError

PROC = Path("/proc")
ROOT = Path("/sys/fs/cgroup")

_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def is_unified(root: Path = ROOT) -> bool:
    """Return whether this machine uses cgroup v2."""
    return (root / "cgroup.controllers").is_file()


def container_in(text: str) -> str | None:
    """Return the container engine's id of the container that a `/proc/<pid>/cgroup` tells of; None outside of one.

    Version 1 has a line for each controller (`4:memory:/docker/<id>`), version 2 one for all, where systemd may have
    made the group (`0::/system.slice/docker-<id>.scope`). Where containers run in containers the innermost one counts.
    """
    found = [match for line in text.splitlines() if (match := _CONTAINER.findall(line.partition(":")[2]))]
    return max(found, key=len)[-1] if found else None


def container_of(pid: int, proc: Path = PROC) -> str | None:
    """Return the container engine's id of the container that a process is in; None for others and ended ones."""
    try:
        return container_in((proc / str(pid) / "cgroup").read_text())
    except OSError:
        return None


def folder_to_be(engine_id: str, manager: str, root: Path = ROOT) -> Path:
    """Return where Docker puts a container's group of version 2, unless it was told another place.

    `manager` is who makes the groups, as Docker names it: `systemd`, or `cgroupfs` for Docker itself.
    """
    return root / (f"system.slice/docker-{engine_id}.scope" if manager == "systemd" else f"docker/{engine_id}")


def folder_of(pid: int, proc: Path = PROC, root: Path = ROOT) -> Path:
    """Return the folder of a process's group of version 2; raises UnavailableError for an ended process."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError as error:
        raise UnavailableError(f"process {pid} has ended", where="cgroup", hint="see the session's log") from error
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")
    if not path.strip("/"):
        raise UnavailableError(
            f"process {pid} has no cgroup of its own", where="cgroup", hint="let Docker make cgroups of version 2"
        )
    return root / path.lstrip("/")
