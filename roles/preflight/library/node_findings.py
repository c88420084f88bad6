#!/usr/bin/python3
"""Whether a node is fit to be installed. It only looks, and names every finding with its hint."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: node_findings
short_description: Check that a node can be installed
description: Looks at system, rights, address, disk, clock and external folders; changes nothing.
author: Penstock
options:
  release: {type: str, required: true, description: Code name of the release that the packages are for.}
  machine: {type: str, required: true, description: Machine type that the packages are for.}
  address: {type: str, required: true, description: Address that the site gives to this node.}
  disk_mib: {type: int, required: true, description: Room that the node needs below /var, in MiB.}
  controller_time: {type: float, required: true, description: Seconds since the epoch on the controller.}
  clock_s: {type: int, required: true, description: How far the clock may be off, in seconds.}
  external: {type: list, elements: path, default: [], description: Folders that the site has mounted already.}
  storages: {type: list, elements: dict, default: [], description: Storages that are here before a deploy.}
  storage_ids: {type: dict, default: {}, description: What stands in their markers as far as the site knows.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "release": {"type": "str", "required": True},
    "machine": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "disk_mib": {"type": "int", "required": True},
    "controller_time": {"type": "float", "required": True},
    "clock_s": {"type": "int", "required": True},
    "external": {"type": "list", "elements": "path", "default": []},
    "storages": {"type": "list", "elements": "dict", "default": []},
    "storage_ids": {"type": "dict", "default": {}},
}
PYTHON = (3, 11)
MARKER = ".penstock-storage"


def main() -> None:
    """Return all findings as `penstock_findings`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    module.exit_json(changed=False, penstock_findings=findings(module.params))


def findings(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one finding a check: its name, whether it is well, and if not the reason and the hint."""
    release = code_name(Path("/etc/os-release"))
    free = shutil.disk_usage("/var").free // 2**20
    off = abs(time.time() - options["controller_time"])
    return [
        finding(
            "system",
            release == options["release"] and platform.machine() == options["machine"],
            f"the node runs {release or 'an unknown system'} on {platform.machine()}",
            f"write its release in the site file, or install {options['release']} for {options['machine']} on it",
            f"{release} on {platform.machine()}, Linux {platform.release()}",
        ),
        finding(
            "python",
            sys.version_info >= PYTHON,
            f"its Python is {platform.python_version()}",
            "install Python 3.11 or newer as /usr/bin/python3",
            platform.python_version(),
        ),
        finding(
            "systemd",
            Path("/run/systemd/system").is_dir(),
            "systemd does not run the node",
            "boot the node with systemd",
            "it runs the node",
        ),
        finding(
            "rights",
            os.geteuid() == 0,
            "the installer is not root on the node",
            "let `ssh.user` be root, or give it sudo without a password",
            "root",
        ),
        finding(
            "address",
            is_own(options["address"]),
            f"no interface has the address {options['address']}",
            "correct the node's address in the site file, or configure its interface",
            options["address"],
        ),
        finding(
            "disk",
            free >= options["disk_mib"],
            f"/var has {free} MiB free, of {options['disk_mib']} MiB needed",
            "make room below /var",
            f"/var has {free} MiB free",
        ),
        finding(
            "clock",
            off <= options["clock_s"],
            f"the clock is {off:.0f} s away from the controller's",
            "set the node's clock; certificates are not valid otherwise",
            f"{off:.0f} s away from the controller's",
        ),
        *(
            finding(
                f"external {path}",
                Path(path).is_dir(),
                f"{path} is not a folder of the node",
                "mount the site's storage there",
                "a folder",
            )
            for path in options["external"]
        ),
        *(
            storage(each["name"], Path(each["path"]), options["storage_ids"][each["name"]])
            for each in options["storages"]
            if each["name"] in options["storage_ids"]
        ),
    ]


def storage(name: str, root: Path, expected: str) -> dict[str, Any]:
    """Return whether a storage of a site that was deployed before is at its root."""
    marker = root / MARKER
    found = marker.read_text().strip() if marker.is_file() else ""
    return finding(
        f"storage {name}",
        found == expected,
        f"{root} is {'another storage than' if found else 'not'} {name}, which has the id {expected} in {MARKER}",
        f"mount it there; where it was replaced for good, remove storages/{name} of the site's state on the controller",
        f"it is at {root}",
    )


def finding(name: str, well: bool, reason: str, hint: str, seen: str) -> dict[str, Any]:
    """Return one finding; reason and hint are empty where all is well, and `seen` says what was good."""
    return {"name": name, "ok": well, "seen": seen, "reason": "" if well else reason, "hint": "" if well else hint}


def code_name(path: Path) -> str:
    """Return the code name of the release that the node runs."""
    found = re.search(r"^VERSION_CODENAME=(\w+)", path.read_text(), re.MULTILINE) if path.is_file() else None
    return found[1] if found else ""


def is_own(address: str) -> bool:
    """Return whether an interface of the node has the address."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    main()
