#!/usr/bin/python3
"""What a node is made of: cores, memory, disk, interfaces, InfiniBand, GPUs and their driver, and rights of root."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: node_machine
short_description: Say what a node is made of
description: Looks at hardware and kernel; judges and changes nothing.
author: Penstock
options: {}
"""

NVIDIA, GPU_CLASSES = "0x10de", ("0x0300", "0x0302")
# by their numbers in Linux's capability.h
CAPABILITIES = {"CAP_DAC_OVERRIDE": 1, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21}


def main() -> None:
    """Return what is there as `penstock_machine`."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, penstock_machine=look())


def look(root: Path = Path("/")) -> dict[str, Any]:
    """Return what the kernel tells of a node below /sys and /proc."""
    memory = re.search(r"^MemTotal:\s+(\d+) kB", content(root / "proc/meminfo"), re.MULTILINE)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory[1]) // 1024 if memory else 0,
        "disk_bytes": shutil.disk_usage(root / "var").total,
        "container": (root / "run/systemd/container").exists() or (root / ".dockerenv").exists(),
        "interfaces": [interface(path) for path in sorted(root.glob("sys/class/net/*")) if path.name != "lo"],
        "hcas": [port(path) for path in sorted(root.glob("sys/class/infiniband/*/ports/*"))],
        "gpus": sum(is_gpu(path) for path in root.glob("sys/bus/pci/devices/*")),
        "driver": content(root / "sys/module/nvidia/version"),
        "missing_capabilities": missing_capabilities(content(root / "proc/self/status")),
    }


def interface(path: Path) -> dict[str, Any]:
    """Return an interface with its speed; None where the kernel knows none."""
    speed = content(path / "speed")
    mbps = int(speed) if speed.isdecimal() and int(speed) > 0 else None
    return {"name": path.name, "mbps": mbps, "up": content(path / "operstate") in ("up", "unknown")}


def port(path: Path) -> dict[str, Any]:
    """Return a port of an HCA with its rate, of which the kernel says `100 Gb/sec (4X EDR)`."""
    rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", content(path / "rate"))
    return {"name": f"{path.parents[1].name}:{path.name}", "gbps": float(rate[1]) if rate else 0.0}


def is_gpu(path: Path) -> bool:
    """Return whether a device of the PCI bus is a GPU of NVIDIA."""
    return content(path / "vendor") == NVIDIA and content(path / "class").startswith(GPU_CLASSES)


def missing_capabilities(status: str) -> list[str]:
    """Return which capabilities that the agent needs no process of this machine can have."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)", status, re.MULTILINE)
    bound = int(found[1], 16) if found else 0
    return [name for name, number in CAPABILITIES.items() if not bound >> number & 1]


def content(path: Path) -> str:
    """Return the text of a small file; nothing where there is none or the kernel does not tell it."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
