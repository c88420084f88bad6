#!/usr/bin/python3
"""What a node has of NVIDIA: GPUs, the driver that is loaded and the one that is installed, and what uses them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: nvidia_node
short_description: Say what a node has of NVIDIA
description: Looks at GPUs, driver, kernel modules, packages and sessions; changes nothing.
author: Penstock
options:
  packages: {type: list, elements: str, default: [], description: Packages that are to be installed.}
  together: {type: list, elements: str, default: [], description: "Packages of one version, the kernel modules first."}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "together": {"type": "list", "elements": "str", "default": []},
}
VENDOR = "0x10de"
# classes of PCI: displays and 3D controllers are GPUs, bridges of no other kind are NVSwitches
GPU_CLASSES, SWITCH_CLASS = ("0x0300", "0x0302"), "0x0680"
# as both releases of DKMS that are about say it: `name/version, kernel, arch: installed`, `name, version, kernel, ...`
BUILT = re.compile(r"^nvidia[\w-]*(?:/|, )([^,]+), ([^,]+), [^:]+: installed", re.MULTILINE)
SESSION = '{{.Label "io.penstock.session-name"}} of {{.Label "io.penstock.user"}}'

Run = Callable[[list[str]], "tuple[int, str]"]


def main() -> None:
    """Return what is there as `penstock_nvidia`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    module.exit_json(changed=False, penstock_nvidia=look(module.params["packages"], module.params["together"]))


def run(command: list[str]) -> tuple[int, str]:
    """Run a program; return its exit code and what it said. One that is not there ends with 127."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, check=False, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


def look(
    packages: list[str], together: list[str], run: Run = run, root: Path = Path("/"), kernel: str = platform.release()
) -> dict[str, Any]:
    """Return what a node has: `reboot` says why it has to be restarted, `fault` what no restart mends.

    `pending` are packages that apt would install or change now, and `refused` is what it says where it cannot.
    `sessions` is None where Docker does not tell them.
    """
    found = {
        "kernel": kernel,
        "headers": (root / "lib/modules" / kernel / "build").exists(),
        "gpus": on_bus(root, GPU_CLASSES),
        "switches": on_bus(root, (SWITCH_CLASS,)),
        "loaded": content(root / "sys/module/nvidia/version"),
        "nouveau": (root / "sys/module/nouveau").is_dir(),
        "versions": versions(run, together),
        "sessions": sessions(run),
        "agent": run(["systemctl", "is-active", "--quiet", "penstock-agent.service"])[0] == 0,
        **plan(run, packages),
    }
    installed = found["versions"].get(together[0], "") if together else ""
    built = {there for version, there in BUILT.findall(run(["dkms", "status"])[1]) if version == installed}
    return {**found, **missing(found, installed, built)}


def on_bus(root: Path, classes: tuple[str, ...]) -> int:
    """Return how many devices of NVIDIA the PCI bus has in these classes."""
    devices = [each for each in root.glob("sys/bus/pci/devices/*") if content(each / "vendor") == VENDOR]
    return sum(content(each / "class").startswith(classes) for each in devices)


def versions(run: Run, names: list[str]) -> dict[str, str]:
    """Return the upstream versions of those packages that are installed."""
    if not names:
        return {}
    shown = run(["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}\t${Package}\t${Version}\n", *names])[1]
    words = [line.split("\t") for line in shown.splitlines() if line.startswith("ii") and line.count("\t") == 2]
    return {name: re.sub(r"^\d+:|-[^-]*$", "", version) for _, name, version in words}


def sessions(run: Run) -> list[str] | None:
    """Return the sessions that have a container on this node, as NAME of USER; None where Docker does not tell."""
    code, said = run(["docker", "ps", "--filter", "label=io.penstock.session", "--format", SESSION])
    # where there is no Docker there are no sessions
    return [] if code == 127 else sorted(set(said.splitlines())) if code == 0 else None


def plan(run: Run, packages: list[str]) -> dict[str, Any]:
    """Return which packages apt would install or change, or why it cannot."""
    if not packages:
        return {"pending": [], "refused": ""}
    code, said = run(["apt-get", "--simulate", "--no-install-recommends", "install", *packages])
    errors = "; ".join(line.strip() for line in said.splitlines() if re.match(r"E: | \S+ : ", line))
    pending = sorted(set(re.findall(r"^Inst (\S+)", said, re.MULTILINE)))
    return {"pending": pending, "refused": (errors or said[-500:]) if code else ""}


def missing(found: dict[str, Any], installed: str, built: set[str]) -> dict[str, str]:
    """Return why a node with GPUs has to be restarted (`reboot`), or what no restart mends (`fault`).

    `built` are the kernels that the `installed` driver was built for.
    """
    reboot = fault = ""
    if found["gpus"] and installed:
        if not built:
            fault = f"DKMS has built {installed} for no kernel"
        elif found["kernel"] not in built:
            reboot = f"{installed} is built for {', '.join(sorted(built))}, and {found['kernel']} runs"
        elif found["nouveau"]:
            reboot = "nouveau has the GPUs"
        elif found["loaded"] not in ("", installed):
            reboot = f"{found['loaded']} is loaded, and {installed} is installed"
    return {"reboot": reboot, "fault": fault}


def content(path: Path) -> str:
    """Return the text of a small file; nothing where there is none."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
