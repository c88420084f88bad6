#!/usr/bin/python3
"""What a node without an agent can say of its health. It only looks; the controller judges and tells the API."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
module: node_health
short_description: Gather what a node without an agent can say of its health
description: Looks at disks, memory, chrony, units and certificates; changes nothing.
author: Penstock
options:
  units: {type: list, elements: str, required: true, description: Units that must run.}
  folders: {type: list, elements: path, required: true, description: Folders whose disks are looked at.}
  certificates: {type: list, elements: path, required: true, description: "Certificates, PEM."}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "units": {"type": "list", "elements": "str", "required": True},
    "folders": {"type": "list", "elements": "path", "required": True},
    "certificates": {"type": "list", "elements": "path", "required": True},
}
WAIT_S = 10
"""How long a program may take to answer."""
HUNG = (
    *("journalctl", "--quiet", "--since=-1h", "--output=cat", "--output-fields=UNIT"),
    *("_PID=1", "MESSAGE_ID=d9b373ed55a64feb8242e02dbe79a49c", "UNIT_RESULT=watchdog"),
)
"""Prints a unit for each time that systemd ended it because it gave no sign of life."""


def main() -> None:
    """Look at everything that the options name and return it as `penstock_health`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)

    def run(*command: str) -> tuple[int, str]:
        code, out, err = module.run_command(["timeout", "--signal=KILL", str(WAIT_S), *command], cwd="/")
        return code, (out if code == 0 else err or out).strip()

    module.exit_json(changed=False, penstock_health=gather(module.params, run))


def gather(options: dict[str, Any], run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return what is seen; `run` starts a program and returns its exit code and output."""
    code, tracking = run("chronyc", "-c", "tracking")
    show = ("systemctl", "show", "--property=Id,LoadState,ActiveState,SubState", "--")
    return {
        "disks": disks([Path(folder) for folder in options["folders"]]),
        "memory": Path("/proc/meminfo").read_text(),
        "clock": {"tracking": "" if code else tracking, "problem": (tracking or f"code {code}") if code else ""},
        "units": {"shown": run(*show, *options["units"])[1], "hung": run(*HUNG)[1]},
        "certificates": {path: until(path, run) for path in options["certificates"]},
    }


def disks(folders: list[Path]) -> dict[str, list[float]]:
    """Return how many percent of each disk are taken, of bytes and of files, by the first folder that it has."""
    seen: set[int] = set()
    found: dict[str, list[float]] = {}
    for folder in folders:
        try:
            device, disk = folder.stat().st_dev, os.statvfs(folder)
        except FileNotFoundError:
            continue
        if device not in seen:
            seen.add(device)
            used = disk.f_blocks - disk.f_bfree
            # what only root may write does not count
            found[str(folder)] = [
                percent(used, used + disk.f_bavail),
                percent(disk.f_files - disk.f_ffree, disk.f_files),
            ]
    return found


def percent(part: float, whole: float) -> float:
    """Return how many percent a part is."""
    return 100 * part / whole if whole else 0.0


def until(path: str, run: Callable[..., tuple[int, str]]) -> int | None:
    """Return when a certificate ends, in seconds since 1970; None where there is none."""
    found = re.search(r"notAfter=(.+)", run("openssl", "x509", "-in", path, "-noout", "-enddate")[1])
    return ssl.cert_time_to_seconds(found[1].strip()) if found else None


if __name__ == "__main__":
    main()
