#!/usr/bin/python3
"""What a node is made of, and what it has for itself.

Cores, memory, disk, interfaces, InfiniBand, GPUs and their driver, rights of root and who limits them in the kernel;
names, ids and addresses.
"""

from __future__ import annotations

import array
import fcntl
import os
import re
import shutil
import socket
import struct
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: node_machine
short_description: Say what a node is made of
description: Looks at hardware and kernel; judges and changes nothing.
author: Penstock
options:
  address: {type: str, default: "", description: Address that the site gives to this node.}
  folder: {type: str, default: /var, description: Where most of what the node keeps is kept.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "address": {"type": "str", "default": ""},
    "folder": {"type": "str", "default": "/var"},
}
NVIDIA, GPU_CLASSES = "0x10de", ("0x0300", "0x0302")
# of Linux's sockios.h, and an entry of its list of addresses: interface, then family, port and address
SIOCGIFCONF, ADDRESSES, ENTRY = 0x8912, 4096, "16s2x2x4s16x"
ARP, ETHERNET, IP, PROBE = 0x0806, 1, 0x0800, 1
ARP_PACKET, ARP_BYTES = "!HHBBH6s4s6s4s", 28
ANSWER_S = 1.0
SELINUX = {"0": "permissive", "1": "enforcing"}
# where systemd has units that outlive a boot, and those that it makes of fstab
UNITS = ("etc/systemd/system", "run/systemd/generator", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
# by their numbers in Linux's capability.h
CAPABILITIES = {"CAP_DAC_OVERRIDE": 1, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21}


def main() -> None:
    """Return what is there as `penstock_machine`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    module.exit_json(
        changed=False, penstock_machine=look(address=module.params["address"], folder=module.params["folder"])
    )


def look(root: Path = Path("/"), address: str = "", folder: str = "/var") -> dict[str, Any]:
    """Return what the kernel tells of a node below /sys and /proc, and who has its address."""
    carrier = carrier_of(address)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", content(root / "proc/meminfo"), re.MULTILINE)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory[1]) // 1024 if memory else 0,
        "disk_folder": folder,
        "disk_bytes": shutil.disk_usage(standing(root / folder.lstrip("/"))).total,
        "disk_by_hand": mounted_by_hand(folder, root),
        "container": (root / "run/systemd/container").exists() or (root / ".dockerenv").exists(),
        "interfaces": [interface(path) for path in sorted(root.glob("sys/class/net/*")) if path.name != "lo"],
        "hcas": [port(path) for path in sorted(root.glob("sys/class/infiniband/*/ports/*"))],
        "gpus": sum(is_gpu(path) for path in root.glob("sys/bus/pci/devices/*")),
        "driver": content(root / "sys/module/nvidia/version"),
        "missing_capabilities": missing_capabilities(content(root / "proc/self/status")),
        "kernel": content(root / "proc/sys/kernel/osrelease"),
        "apparmor": content(root / "sys/module/apparmor/parameters/enabled") == "Y",
        "apparmor_parser": any((root / path).exists() for path in ("sbin/apparmor_parser", "usr/sbin/apparmor_parser")),
        "selinux": SELINUX.get(content(root / "sys/fs/selinux/enforce"), ""),
        "hostname": content(root / "proc/sys/kernel/hostname"),
        "machine_id": content(root / "etc/machine-id"),
        "carrier": carrier,
        "mtu": int(content(root / "sys/class/net" / carrier / "mtu") or 0) if carrier else 0,
        "mac": content(root / "sys/class/net" / carrier / "address") if carrier else "",
        "claimants": claimants(address, carrier, root) if carrier else [],
    }


def standing(path: Path) -> Path:
    """Return a folder, or the next one above it that is there."""
    return next(each for each in (path, *path.parents) if each.is_dir())


def mounted_by_hand(folder: str, root: Path) -> str:
    """Return the mount that a folder lies on where no unit of systemd brings it back after a boot; else nothing."""
    mounts = [line.split()[1:3] for line in content(root / "proc/mounts").splitlines()]
    over = [(len(point), point, kind) for point, kind in mounts if f"{folder}/".startswith(f"{point.rstrip('/')}/")]
    _, point, kind = max(over, default=(0, "/", ""), key=lambda each: each[0])
    # datasets of ZFS are mounted by a service of their own
    if point == "/" or kind in ("autofs", "zfs"):
        return ""
    escaped = (re.sub(r"[^A-Za-z0-9:_.]", lambda char: f"\\x{ord(char[0]):02x}", part) for part in point[1:].split("/"))
    unit = f"{'-'.join(escaped)}.mount"
    named = [line.split()[1].rstrip("/") for line in content(root / "etc/fstab").splitlines() if is_mount(line)]
    return "" if point in named or any((root / where / unit).exists() for where in UNITS) else point


def is_mount(line: str) -> bool:
    """Return whether a line of fstab is a mount."""
    return len(line.split()) > 2 and not line.lstrip().startswith("#")


def interface(path: Path) -> dict[str, Any]:
    """Return an interface with its speed; None where the kernel knows none."""
    speed = content(path / "speed")
    mbps = int(speed) if speed.isdecimal() and int(speed) > 0 else None
    return {"name": path.name, "mbps": mbps, "up": content(path / "operstate") in ("up", "unknown")}


def port(path: Path) -> dict[str, Any]:
    """Return a port of an HCA with its rate, such as `100 Gb/sec (4X EDR)`; the link of RoCE is Ethernet."""
    rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", content(path / "rate"))
    name = f"{path.parents[1].name}:{path.name}"
    return {"name": name, "gbps": float(rate[1]) if rate else 0.0, "link": content(path / "link_layer")}


def is_gpu(path: Path) -> bool:
    """Return whether a device of the PCI bus is a GPU of NVIDIA."""
    return content(path / "vendor") == NVIDIA and content(path / "class").startswith(GPU_CLASSES)


def missing_capabilities(status: str) -> list[str]:
    """Return which capabilities that the agent needs no process of this machine can have."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)", status, re.MULTILINE)
    bound = int(found[1], 16) if found else 0
    return [name for name, number in CAPABILITIES.items() if not bound >> number & 1]


def carrier_of(address: str) -> str:
    """Return the interface that has an IPv4 address; nothing where none has."""
    found = array.array("B", bytes(ADDRESSES * struct.calcsize(ENTRY)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        place, size = found.buffer_info()
        said = fcntl.ioctl(asked, SIOCGIFCONF, struct.pack("iL", size, place))
    for label, own in struct.iter_unpack(ENTRY, found.tobytes()[: struct.unpack("iL", said)[0]]):
        if socket.inet_ntoa(own) == address:
            return str(label.rstrip(b"\0").decode().partition(":")[0])
    return ""


def claimants(address: str, carrier: str, root: Path) -> list[str]:
    """Return the hardware addresses of other machines that answer to this node's own address (ARP, RFC 5227)."""
    ours = {content(path) for path in root.glob("sys/class/net/*/address")}
    if content(root / "sys/class/net" / carrier / "type") != str(ETHERNET):
        return []
    mac = bytes.fromhex(content(root / "sys/class/net" / carrier / "address").replace(":", ""))
    # a sender's address would change what others know
    asked = struct.pack(ARP_PACKET, ETHERNET, IP, 6, 4, PROBE, mac, bytes(4), bytes(6), socket.inet_aton(address))
    found = set()
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ARP)) as wire:
            wire.bind((carrier, ARP))
            wire.send(b"\xff" * 6 + mac + struct.pack("!H", ARP) + asked)
            until = time.monotonic() + ANSWER_S
            while (left := until - time.monotonic()) > 0:
                wire.settimeout(left)
                packet = wire.recv(64)[14 : 14 + ARP_BYTES].ljust(ARP_BYTES, b"\0")
                *_, who, claimed, _, _ = struct.unpack(ARP_PACKET, packet)
                if claimed == socket.inet_aton(address) and (known := who.hex(":")) not in ours:
                    found.add(known)
    except TimeoutError:
        pass
    except OSError:
        return []  # no right to ask, as in some containers
    return sorted(found)


def content(path: Path) -> str:
    """Return the text of a small file; nothing where there is none or the kernel does not tell it."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
