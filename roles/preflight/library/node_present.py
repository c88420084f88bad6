#!/usr/bin/python3
"""What stands on a node that Penstock may have to replace. It only looks; `appliance/site/preflight.py` judges."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: node_present
short_description: Say what stands on a node already
description: Looks at packages, container engines, ports, databases, exports and web servers; changes nothing.
author: Penstock
options:
  packages: {type: list, elements: str, required: true, description: Packages that will be installed.}
  index: {type: str, required: true, description: "Index of the bundle's packages, as apt reads it."}
  ports: {type: list, elements: int, required: true, description: Ports that services will listen on.}
  exports: {type: str, default: "", description: File with the exports of the NFS server.}
  docker_root: {type: str, default: "", description: Where Docker is to keep images and containers.}
  root: {type: path, default: /, description: Root of the file system.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "packages": {"type": "list", "elements": "str", "required": True},
    # not secret, but far too long for a journal
    "index": {"type": "str", "required": True, "no_log": True},
    "ports": {"type": "list", "elements": "int", "required": True},
    "exports": {"type": "str", "default": ""},
    "docker_root": {"type": "str", "default": ""},
    "root": {"type": "path", "default": "/"},
}
ENGINE_PACKAGES = (
    "docker.io",
    "docker-ce",
    "docker-engine",
    "moby-engine",
    "podman",
    "containerd",
    "containerd.io",
    "cri-o",
)
ENGINE_UNITS = (
    "docker",
    "snap.docker.dockerd",
    "crio",
    "kubelet",
    "k3s",
    "k3s-agent",
    "rke2-server",
    "rke2-agent",
    "snap.microk8s.daemon-kubelite",
)
DOCKER_ROOT = "/var/lib/docker"
DOCKER_MAKES = {
    *("buildkit", "containerd", "containers", "engine-id", "image", "network", "plugins", "rootfs", "runtimes"),
    *("swarm", "tmp", "trust", "volumes", "btrfs", "fuse-overlayfs", "overlay2", "vfs", "zfs"),
}
# Docker can lay no layers on these, and two nodes may have one of them
NO_LAYERS = re.compile(r"nfs\d?|cifs|smb3|ceph|lustre|gpfs|beegfs\w*|afs|9p|fuse\..+")
# what runs one container each, whoever started it
SHIMS = ("containerd-shim", "conmon")
LOCKS = ("var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock")
LOCKED_S = 60
# struct flock of Linux: type, whence, start, length, process
FLOCK = "hhqqi4x"


def main() -> None:
    """Return what is there as `penstock_present`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    module.exit_json(changed=False, penstock_present=present(module.params))


def present(options: dict[str, Any]) -> dict[str, Any]:
    """Return what is there, by what it is."""
    root = Path(options["root"])
    return {
        "locked": locked(root),
        "broken": broken(root),
        "simulation": simulation(options["packages"], options["index"]),
        "engines": engines(),
        "containers": containers(root / "proc"),
        "listening": listening(set(options["ports"]), root / "proc"),
        "clusters": clusters(root),
        "exports": exports(root, options["exports"]),
        "docker_root": docker_root(root, options.get("docker_root", "")),
        "web_server": web_server(root),
        "recorded": recorded(root),
    }


def docker_root(root: Path, wanted: str) -> dict[str, Any]:
    """Return where Docker keeps its things now and is to, how many containers it would lose, and what is in the way."""
    try:
        told = json.loads((root / "etc/docker/daemon.json").read_text())["data-root"]
    except (OSError, ValueError, LookupError, TypeError):
        told = DOCKER_ROOT
    before, to = root / str(told).lstrip("/"), root / wanted.lstrip("/")
    found = {"before": str(told), "containers": 0, "foreign": [], "kind": "", "real": ""}
    if not wanted or (kind := without_layers(wanted, content(root / "proc/mounts"))):
        # who looks into that of a server may wait for ever
        return found | {"kind": kind if wanted else ""}
    real = to.resolve()
    there = {path.name for path in to.glob("*")} - {"lost+found"}
    # what Docker has there, or what an administrator has brought there for it
    known = there if before == to else DOCKER_MAKES if "containers" in there else set()
    left = {path.name for path in (before / "containers").glob("*")} - {path.name for path in to.glob("containers/*")}
    return found | {
        "containers": len(left),
        "foreign": sorted(there - known)[:3],
        "real": "" if real == root.resolve() / wanted.lstrip("/") else str(real),
    }


def without_layers(folder: str, mounts: str) -> str:
    """Return of what kind the file system of a folder is where Docker can lay no layers on it; else nothing."""
    kind, longest = "", ""
    for line in mounts.splitlines():
        point, name = line.split()[1:3]
        # the last one at a place lies on top
        if f"{folder}/".startswith(f"{point.rstrip('/')}/") and len(point) >= len(longest):
            kind, longest = name, point
    return kind if NO_LAYERS.fullmatch(kind) else ""


def run(*command: str) -> tuple[int, str]:
    """Run a program; return its exit code and all that it said. One that is not there ends with 127."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
            timeout=300,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


def locked(root: Path) -> str:
    """Return who is at work with apt or dpkg, after a while of waiting for its end; nothing where nobody is."""
    end = time.monotonic() + LOCKED_S
    while (holder := next(filter(None, (lock_holder(root / path) for path in LOCKS)), "")) and time.monotonic() < end:
        time.sleep(1)
    return holder


def lock_holder(path: Path) -> str:
    """Return the process that has locked a file, without locking it."""
    try:
        with path.open("rb+") as file:
            asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, pid = struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except FileNotFoundError:
        return ""
    return "" if kind == fcntl.F_UNLCK else f"{program(Path('/proc', str(pid)))} (pid {pid})"


def broken(root: Path) -> str:
    """Return what dpkg has begun and not ended."""
    if any((root / "var/lib/dpkg/updates").glob("[0-9]*")):
        return "dpkg was interrupted"
    names = re.findall(r"^ ([a-z0-9][a-z0-9.+-]*)(?::\w+)? ", run("dpkg", "--audit")[1], re.MULTILINE)
    return f"not wholly installed: {', '.join(dict.fromkeys(names))}" if names else ""


def simulation(packages: list[str], index: str) -> dict[str, Any]:
    """Return what apt would remove and install to have packages of an index alone, and what it says where it cannot.

    apt has lists and a cache of its own for this; what is installed, held and pinned is the node's.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-apt-") as name:
        folder = Path(name)
        for part in ("lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True)
        # apt fetches nothing here: it finds the index by the name that its address gives it
        (folder / "sources.list").write_text("deb [trusted=yes] file:/bundle ./\n")
        (folder / "lists" / "_bundle_._Packages").write_text(index)
        options = {
            "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": folder / "lists",
            "Dir::Cache": folder / "cache",
            "APT::Install-Recommends": "false",
            "Debug::NoLocking": "true",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        code, said = run("apt-get", "--simulate", "--yes", *words, "install", *packages)
    held = re.findall(r"^(\S+)\s+hold$", run("dpkg", "--get-selections")[1], re.MULTILINE)
    removed = sorted(set(re.findall(r"^Remv (\S+)", said, re.MULTILINE)))
    installed = re.findall(r"^Inst (\S+) (?:\[(\S+)\] )?\((\S+)", said, re.MULTILINE)
    errors = "; ".join(line.strip() for line in said.splitlines() if re.match(r"E: | \S+ : ", line))
    return {
        "removed": removed,
        "installed": [f"{name} {before or '-'} -> {after}" for name, before, after in installed],
        "held": held,
        "error": (errors or said[-500:]) if code else "",
    }


def engines() -> dict[str, str]:
    """Return container engines and what runs pods, each with its version or the word `running`."""
    shown = run("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}\t${Package}\t${Version}\n", *ENGINE_PACKAGES)[
        1
    ]
    words = [line.split("\t") for line in shown.splitlines() if line[1:2] == "i" and "\t" in line]
    active = [unit for unit in ENGINE_UNITS if run("systemctl", "is-active", "--quiet", f"{unit}.service")[0] == 0]
    return {**dict.fromkeys(active, "running"), **{name: version for _, name, version in words}}


def containers(proc: Path) -> dict[str, int]:
    """Return how many containers run, by the program that looks after one each."""
    names = [program(each) for each in processes(proc)]
    return {shim: sum(name.startswith(shim) for name in names) for shim in SHIMS}


def listening(ports: set[int], proc: Path) -> list[dict[str, Any]]:
    """Return who listens on some ports: process and unit; both are empty where the kernel itself does."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in (proc / "net" / name).read_text().splitlines()[1:] if (proc / "net" / name).exists() else ():
            words = line.split()
            port = int(words[1].rpartition(":")[2], 16)
            if words[3] == "0A" and port in ports:
                found[f"socket:[{words[9]}]"] = port
    holders: dict[str, dict[str, Any]] = {}
    for process in processes(proc) if found else ():
        for socket in sockets(process) & found.keys():
            holders.setdefault(socket, {"process": program(process), "pid": int(process.name), "unit": unit(process)})
    nobody = {"process": "", "pid": 0, "unit": ""}
    by_port = {port: holders.get(socket, nobody) for socket, port in found.items()}
    return [{"port": port, **holder} for port, holder in sorted(by_port.items())]


def processes(proc: Path) -> Iterator[Path]:
    """Yield the folder of every process."""
    return (each for each in proc.iterdir() if each.name.isdigit())


def sockets(process: Path) -> set[str]:
    """Return the sockets that a process has open."""
    found = set()
    try:
        for each in (process / "fd").iterdir():
            found.add(str(each.readlink()))
    except OSError:
        pass  # it has ended meanwhile
    return found


def program(process: Path) -> str:
    """Return the name of a process."""
    return content(process / "comm").strip()


def unit(process: Path) -> str:
    """Return the unit that a process belongs to."""
    found = re.findall(r"([^/\n]+\.(?:service|scope|socket))", content(process / "cgroup"))
    return found[-1] if found else ""


def clusters(root: Path) -> list[dict[str, Any]]:
    """Return the clusters of PostgreSQL: version, name, port, databases, and whether Penstock has configured it."""
    found = []
    for settings in sorted(root.glob("etc/postgresql/*/*/postgresql.conf")):
        said = re.search(r"^\s*port\s*=\s*'?(\d+)", content(settings), re.MULTILINE)
        port = said[1] if said else "5432"
        query = "SELECT datname FROM pg_database WHERE NOT datistemplate ORDER BY datname"
        command = (
            "runuser",
            "--user=postgres",
            "--",
            "psql",
            "-XAtq",
            f"--port={port}",
            f"--command={query}",
            "postgres",
        )
        code, text = run(*command)
        found.append(
            {
                "version": settings.parent.parent.name,
                "name": settings.parent.name,
                "port": int(port),
                "databases": None if code else text.split(),
                "ours": (settings.parent / "conf.d/penstock.conf").exists(),
            }
        )
    return found


def exports(root: Path, path: str) -> list[str]:
    """Return what a file of an NFS server says, without comments."""
    lines = content(root / path.lstrip("/")).splitlines() if path else []
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def web_server(root: Path) -> bool:
    """Return whether nginx serves something here that is not Penstock's."""
    ours = any(root.glob("etc/nginx/conf.d/penstock-*.conf"))
    return not ours and run("systemctl", "is-active", "--quiet", "nginx.service")[0] == 0


def recorded(root: Path) -> list[str] | None:
    """Return the files that are Penstock's by now; None of a node that an earlier release has installed."""
    record = root / "var/lib/penstock/kept/record.json"
    if record.exists():
        return sorted(json.loads(record.read_text()))
    return None if (root / "etc/penstock/pki/node.crt").exists() else []


def content(path: Path) -> str:
    """Return the text of a file; nothing where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    main()
