"""Checks of the machine that a service runs on: its disks, memory, clock, units and certificates.

What was seen is judged apart from how: agents look for themselves, the controller by SSH.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from common.checks import Check, CheckState
from common.health import RENEW, graded
from common.repairs import REPAIR_OF

LEADERS_FOLDERS = (Path("/"), Path("/var/lib/postgresql"), Path("/var/log"))
"""Folders whose disks the leader of the API looks at, on the master."""
DAY_S = 24 * 3600
FABRIC_MANAGER = "nvidia-fabricmanager.service"
"""Where it does not run, programs find no GPU that others reach by NVSwitch: unlike other units it closes its node."""
HANGS = 2
"""A service that hung so often within an hour, and was started again each time, needs more than that."""


def disks(folders: Sequence[Path], warn: float, fail: float) -> Iterator[Check]:
    """Judge how many percent of the disks below some folders are full, each once: of bytes, and of room for files."""
    seen = set()
    for folder in folders:
        try:
            device, found = folder.stat().st_dev, os.statvfs(folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except OSError as error:
            said = f"it cannot be looked at: {error.strerror}"
            yield Check("disk", "disk has room", CheckState.UNKNOWN, said, f"look at `dmesg` and {folder}", str(folder))
            continue
        if device in seen:
            continue
        seen.add(device)
        # what only root may write does not count
        usable = found.f_blocks - found.f_bfree + found.f_bavail
        used = _percent(found.f_blocks - found.f_bfree, usable)
        yield disk(str(folder), used, _percent(found.f_files - found.f_ffree, found.f_files), warn, fail)


def disk(folder: str, used: float, files: float, warn: float, fail: float) -> Check:
    """Judge how many percent of the disk below a folder are full, and of its room for files."""
    state = graded(max(used, files), warn, fail)
    said = f"{used:.0f} % is full" + (f", {files:.0f} % of its files are there" if files > used else "")
    hint = f"look at `du -xh {folder}` for what can go" if state is not CheckState.OK else ""
    return Check("disk", "disk has room", state, said, hint, folder)


def memory(warn: float, fail: float, path: Path = Path("/proc/meminfo")) -> Iterator[Check]:
    """Judge how many percent of the memory are in use, so that nobody else could have them."""
    yield memory_of(path.read_text(), warn, fail)


def memory_of(text: str, warn: float, fail: float) -> Check:
    """Judge what the kernel says of the memory."""
    rows = (line.split() for line in text.splitlines())
    found = {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1}
    used = 100 - _percent(found["MemAvailable"], found["MemTotal"])
    state = graded(used, warn, fail)
    hint = "look at `ps aux --sort -rss` for who has it" if state is not CheckState.OK else ""
    return Check("memory", "memory is left", state, f"{used:.0f} % is in use", hint)


def clock(tracking: str, problem: str = "") -> Check:
    """Judge whether chrony keeps the time, from `chronyc -c tracking`, or why that does not answer."""
    name, hint = "clock is kept", "look at `systemctl status chrony` and `chronyc sources`"
    if problem:
        return Check("clock", name, CheckState.FAIL, f"chrony does not answer: {problem}", hint)
    fields = tracking.split(",")
    well = len(fields) > 13 and fields[13].strip() == "Normal"
    said = f"it follows {fields[1] or 'itself'}" if well else "it follows no source"
    return Check("clock", name, CheckState.OK if well else CheckState.WARN, said, "" if well else hint)


def units(shown: str, hung: str = "") -> Iterator[Check]:
    """Judge whether units run and work, from what `systemctl show` says of them.

    `hung` has a unit in each line for each time that it gave no sign of life, within the last hour.
    """
    if "Id=" not in shown:
        yield Check("service", "services run", CheckState.UNKNOWN, f"systemd does not answer: {shown.strip()}")
        return
    hangs = hung.split()
    for part in shown.strip().split("\n\n"):
        found = dict(line.split("=", 1) for line in part.splitlines())
        unit = found["Id"]
        runs, times = found["ActiveState"] in ("active", "reloading"), hangs.count(unit)
        said = f"{found['ActiveState']} ({found['SubState']})"
        said += f", hung {times} times within an hour" if times >= HANGS else ""
        yield Check.of(
            *(("gpu.fabric", "fabric manager runs") if unit == FABRIC_MANAGER else ("service", "service runs")),
            ok=runs and times < HANGS,
            evidence=said if found["LoadState"] != "not-found" else "there is no such unit",
            hint=f"look at `systemctl status {unit}` and `journalctl -u {unit}`",
            subject=unit,
            repair="" if runs else REPAIR_OF["service"],
        )


def certificate(identity: str, subject: str, until: float, warn_days: float, fail_days: float) -> Check:
    """Judge for how long a certificate counts; `until` is in seconds since 1970."""
    days = (until - time.time()) / DAY_S
    state = CheckState.OK
    if days < fail_days:
        state = CheckState.FAIL
    elif days < warn_days:
        state = CheckState.WARN
    said = f"{'ended' if days < 0 else 'counts until'} {datetime.fromtimestamp(until, UTC):%Y-%m-%d}"
    hint = RENEW if state is not CheckState.OK else ""
    return Check(identity, "certificate counts for long", state, said, hint, subject)


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0
