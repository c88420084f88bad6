#!/usr/bin/python3
"""What an agent left on its port: a program of its own installation that listens there outside its unit is ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: leftovers
short_description: End what an installation left on a port
description: Ends programs of an installation that listen on a port outside its unit; refuses to end any other.
author: Penstock
options:
  port: {type: int, required: true, description: The port.}
  venv: {type: path, required: true, description: The installation.}
  unit: {type: str, required: true, description: Its unit, whose processes are left alone.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "port": {"type": "int", "required": True},
    "venv": {"type": "path", "required": True},
    "unit": {"type": "str", "required": True},
}
PROC = Path("/proc")
LISTENING = "0A"


def main() -> None:
    """End what is left, or say who else has the port."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    port, venv, unit = (module.params[name] for name in ("port", "venv", "unit"))
    found = {pid: command(pid) for pid in listeners(port) if not in_unit(pid, unit)}
    foreign = {pid: words for pid, words in found.items() if not words.startswith(f"{venv}/")}
    if foreign:
        who = ", ".join(f"process {pid} ({words})" for pid, words in foreign.items())
        module.fail_json(msg=f"port {port} is taken by {who}, which is none of ours. Hint: stop it on the node")
    if not module.check_mode:
        for pid in found:
            os.kill(pid, signal.SIGKILL)
    module.exit_json(changed=bool(found), ended=sorted(found.values()))


def listeners(port: int, proc: Path = PROC) -> list[int]:
    """Return the processes that listen on a port."""
    sockets = {f"socket:[{inode}]" for name in ("tcp", "tcp6") for inode in _inodes(proc / "net" / name, port)}
    return sorted({int(path.name) for path in proc.glob("[0-9]*") if sockets & set(_open(path))}) if sockets else []


def _inodes(table: Path, port: int) -> list[str]:
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port]


def _open(process: Path) -> list[str]:
    try:
        return [str(path.readlink()) for path in (process / "fd").iterdir()]
    except OSError:
        # it has ended
        return []


def command(pid: int, proc: Path = PROC) -> str:
    """Return the command line of a process."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def in_unit(pid: int, unit: str, proc: Path = PROC) -> bool:
    """Return whether a process is of a unit."""
    try:
        return f"/{unit}" in (proc / str(pid) / "cgroup").read_text()
    except OSError:
        return False


if __name__ == "__main__":
    main()
