"""Deleted files that programs of a container still have open or mapped: they lie on the disk, and in no folder.

Nothing is asked of a file before the kernel has said on which mount or device it lies: a file server may not answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from appliance.gpu import cgroups
from appliance.gpu.cgroups import PROC

_BLOCK = 512
_DELETED = " (deleted)"
_MOUNT_ID = re.compile(r"^mnt_id:\s*(\d+)", re.MULTILINE)


def size_mib(engine_id: str, pid: int, points: Collection[str], layer: Path, proc: Path = PROC) -> int:
    """Return what deleted files hold, each once, that lie on a container's mounts at `points`.

    `pid` is its first process, and `layer` is where it writes: mapped files count there alone.
    """
    own = proc / str(pid)
    try:
        mounts = _mounts(own, points)
        root = (own / "root").stat().st_dev
        devices = {root, layer.stat().st_dev}
    except OSError:
        # it has ended, and holds nothing any more
        return 0
    sizes: dict[tuple[int, int], int] = {}
    for process in _processes(engine_id, proc):
        for link, allowed in (
            *((link, None) for link in _open_files(process, mounts)),
            *((link, root) for link in _mapped_files(process, devices)),
        ):
            status = _status(link)
            if status and not status.st_nlink and allowed in (None, status.st_dev):
                sizes[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return sum(sizes.values()) >> 20


def _processes(engine_id: str, proc: Path) -> Iterator[Path]:
    pids = [int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()]
    return (proc / str(pid) for pid in pids if cgroups.container_of(pid, proc) == engine_id)


def _mounts(process: Path, points: Collection[str]) -> set[str]:
    """Return the ids of mounts by the places on which they are."""
    lines = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    return {fields[0] for fields in lines if fields[4] in points}


def _open_files(process: Path, mounts: Collection[str]) -> Iterator[Path]:
    for link in _deleted(process / "fd"):
        try:
            told = _MOUNT_ID.search((process / "fdinfo" / link.name).read_text())
        except OSError:
            continue
        if told and told[1] in mounts:
            yield link


def _mapped_files(process: Path, devices: Collection[int]) -> Iterator[Path]:
    try:
        lines = (process / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        if line.endswith(_DELETED):
            span, _, _, device, *_ = line.split()
            major, minor = (int(part, 16) for part in device.split(":"))
            if os.makedev(major, minor) in devices:
                # the kernel writes the one with leading zeros, and the other without
                yield process / "map_files" / "-".join(f"{int(part, 16):x}" for part in span.split("-"))


def _deleted(folder: Path) -> Iterator[Path]:
    try:
        links = [*folder.iterdir()]
    except OSError:
        return
    for link in links:
        try:
            if str(link.readlink()).endswith(_DELETED):
                yield link
        except OSError:
            # closed meanwhile
            continue


def _status(link: Path) -> os.stat_result | None:
    try:
        return link.stat()
    except OSError:
        return None
