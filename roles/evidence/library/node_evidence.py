#!/usr/bin/python3
"""What a node can say about itself. It only looks; the judging is done elsewhere, from all nodes together."""

from __future__ import annotations

import configparser
import hashlib
import json
import platform
import re
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
module: node_evidence
short_description: Gather what a node can say about itself
description: Looks at services, ports, routes, package sources, time, Docker, API, database, exports; changes nothing.
author: Penstock
options:
  services: {type: list, elements: str, default: [], description: Units whose state is wanted.}
  enabled: {type: list, elements: str, default: [], description: Units that are to start at boot.}
  packages: {type: list, elements: str, default: [], description: Debian packages whose version is wanted.}
  api_url: {type: str, required: true, description: URL of the control API.}
  ca: {type: path, required: true, description: The site's CA.}
  crl: {type: path, required: true, description: What it has revoked.}
  certificate: {type: path, required: true, description: The certificate of this node.}
  nodes_command: {type: list, elements: str, default: [], description: Prints the nodes that the API knows.}
  database: {type: str, description: Database to reach as its owner over the local socket; none means not to try.}
  audit: {type: path, description: Folder of the audit log, which the owner of the database writes; may be none.}
  address: {type: str, required: true, description: Address of this node.}
  exports: {type: list, elements: path, default: [], description: Folders that this node exports by NFS.}
  mounts: {type: list, elements: path, default: [], description: Folders that this node mounts by NFS.}
  storages: {type: list, elements: dict, default: [], description: Storages that this node has.}
  storage_ids: {type: dict, default: {}, description: What stands in their markers.}
  limits: {type: list, elements: str, default: [], description: Chains of packet rules that limit connections.}
  firewall: {type: str, default: "", description: Table of nftables that closes ports.}
  library: {type: path, description: The library that sessions load to hold GPU shares; none means not to look.}
  published: {type: path, description: The same library as it came from the reservoir.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "services": {"type": "list", "elements": "str", "default": []},
    "enabled": {"type": "list", "elements": "str", "default": []},
    "packages": {"type": "list", "elements": "str", "default": []},
    "api_url": {"type": "str", "required": True},
    "ca": {"type": "path", "required": True},
    "crl": {"type": "path", "required": True},
    "certificate": {"type": "path", "required": True},
    "nodes_command": {"type": "list", "elements": "str", "default": []},
    "database": {"type": "str"},
    "audit": {"type": "path"},
    "address": {"type": "str", "required": True},
    "exports": {"type": "list", "elements": "path", "default": []},
    "mounts": {"type": "list", "elements": "path", "default": []},
    "storages": {"type": "list", "elements": "dict", "default": []},
    "storage_ids": {"type": "dict", "default": {}},
    "limits": {"type": "list", "elements": "str", "default": []},
    "firewall": {"type": "str", "default": ""},
    "library": {"type": "path"},
    "published": {"type": "path"},
}
MARKER = ".penstock-storage"
OUTSIDE = ("192.0.2.1", 443)
"""A documentation address: nothing may answer, and a closed network says at once that there is no way."""
WAIT_S = 30
"""How long a program may take to answer."""
PIP_FILES = (
    "etc/pip.conf",
    "etc/xdg/pip/pip.conf",
    "root/.config/pip/pip.conf",
    "root/.pip/pip.conf",
    "opt/penstock/*/pip.conf",
)
PIP_KEYS = ("index-url", "extra-index-url", "find-links")
DISPLAY, NVIDIA = "0x03", "0x10de"
"""How the kernel writes the class of graphics cards on the PCI bus, and who made them."""


def main() -> None:
    """Look at everything that the options name and return it as `penstock_evidence`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params

    def run(*command: str) -> tuple[int, str]:
        words = ["timeout", "--kill-after=5", str(WAIT_S), *command]
        try:
            code, out, err = module.run_command(words, handle_exceptions=False, cwd="/")
        except OSError as error:
            return 127, str(error)
        if code == 124:
            return code, f"{command[0]} did not answer within {WAIT_S} s"
        return code, (out if code == 0 else out + err).strip()

    module.exit_json(changed=False, penstock_evidence=gather(options, run))


def gather(options: dict[str, Any], run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return the evidence; `run` starts a program and returns its exit code and output.

    What cannot be looked at takes nothing else away: `lost` has the reason.
    """
    evidence: dict[str, Any] = {}
    lost: dict[str, str] = {}
    for name, look in parts(options, run).items():
        try:
            evidence[name] = look()
        except Exception as error:
            lost[name] = str(error) or type(error).__name__
    return evidence | {"lost": lost}


def parts(options: dict[str, Any], run: Callable[..., tuple[int, str]]) -> dict[str, Callable[[], Any]]:
    """Return what there is to look at on this node, by name."""
    found: dict[str, Callable[[], Any]] = {
        "os": lambda: os_name(Path("/etc/os-release")),
        "kernel": platform.release,
        "machine": platform.machine,
        "penstock": lambda: penstock_versions(Path("/opt/penstock")),
        "packages": lambda: table(
            run("dpkg-query", "--show", "--showformat=${Package} ${Version}\n", *options["packages"])[1]
        ),
        "services": lambda: {unit: run("systemctl", "is-active", unit)[1] for unit in options["services"]},
        "enabled": lambda: {unit: run("systemctl", "is-enabled", unit)[1] for unit in options["enabled"]},
        "ports": lambda: listening(run("ss", "--no-header", "--listening", "--tcp", "--numeric")[1]),
        "default_routes": lambda: [
            line.strip()
            for family in ("-4", "-6")
            for line in run("ip", family, "route", "show", "default")[1].splitlines()
        ],
        "outside": outside,
        "package_sources": lambda: package_sources(*run("apt-get", "update", "--print-uris")),
        "package_proxies": lambda: package_proxies(run("apt-config", "dump", "Acquire")[1]),
        "pip_sources": lambda: pip_sources(Path("/")),
        "time": lambda: tracking(*run("chronyc", "-c", "tracking")),
        "docker": lambda: docker(*run("docker", "info", "--format", "{{json .}}")),
        "security_modules": lambda: security_modules(Path("/")),
        "pci_gpus": lambda: pci_gpus(Path("/sys/bus/pci/devices")),
        "api": lambda: health(options["api_url"], options["ca"]),
        "certificate": lambda: certificate(options["certificate"], options["ca"], options["crl"], run),
        "authority": lambda: until(options["ca"], run),
        "mounts": lambda: {path: mounted(path, Path("/proc/self/mounts").read_text()) for path in options["mounts"]},
        "storages": lambda: {
            each["name"]: storage(Path(each["path"]), options["storage_ids"].get(each["name"], ""), run)
            for each in options["storages"]
        },
        "limits": lambda: {chain: limit(chain, run) for chain in options["limits"]},
        "exports": lambda: {path: export(path, options["address"], run) for path in options["exports"]},
    }
    if options["firewall"]:
        found["firewall"] = lambda: firewall(options["firewall"], run)
    if options["library"]:
        found["gpu_library"] = lambda: library(Path(options["library"]), Path(options["published"]), run)
    if options["database"]:
        found["database"] = lambda: database(options["database"], run)
    if options["audit"]:
        found["audit"] = lambda: audit(options["audit"], options["database"], run)
    if options["nodes_command"]:
        found["nodes"] = lambda: nodes(*run(*options["nodes_command"]))
    return found


def os_name(path: Path) -> str:
    """Return the name of the operating system, with its release."""
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', path.read_text(), re.MULTILINE)
    return found[1] if found else ""


def penstock_versions(folder: Path) -> dict[str, str]:
    """Return the version of Penstock in each virtual environment of the node."""
    found = sorted(folder.glob("[!.]*/lib/python3*/site-packages/penstock-*.dist-info"))
    return {path.relative_to(folder).parts[0]: path.name.split("-")[1].removesuffix(".dist") for path in found}


def table(text: str) -> dict[str, str]:
    """Return lines of two words as a dictionary, without the lines that have another form."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def listening(text: str) -> list[int]:
    """Return the TCP ports on which something listens beyond the loopback address, from the output of ss."""
    sockets = [line.split()[3] for line in text.splitlines() if len(line.split()) > 3]
    return sorted({int(port) for host, _, port in (name.rpartition(":") for name in sockets) if not _loopback(host)})


def _loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("[::1]", "::1")


def outside() -> str:
    """Return why the outside cannot be reached; empty where it can."""
    try:
        with socket.create_connection(OUTSIDE, timeout=2):
            return ""
    except OSError as error:
        return error.strerror or "timed out"


def package_sources(code: int, text: str) -> list[str]:
    """Return from where apt would fetch its indexes now, from the output of `apt-get update --print-uris`.

    What apt lists of its sources otherwise is what it has fetched before.
    """
    if code:
        raise ValueError(text)
    addresses = re.findall(r"^'([^']+)'", text, re.MULTILINE)
    return sorted({f"{address.partition('/dists/')[0]}/" for address in addresses})


def package_proxies(text: str) -> list[str]:
    """Return by whom apt would fetch, from what it says of its settings."""
    return sorted(set(re.findall(r'^Acquire::\S+::Proxy(?:-Auto-Detect)? "([^"]+)";', text, re.MULTILINE)))


def pip_sources(root: Path) -> dict[str, list[str]]:
    """Return from where pip would fetch, by the keys of its files of settings."""
    found: dict[str, list[str]] = {key: [] for key in PIP_KEYS}
    for path in sorted(path for pattern in PIP_FILES for path in root.glob(pattern)):
        settings = configparser.RawConfigParser(strict=False)
        settings.read(path)
        for section in settings.sections():
            for key in PIP_KEYS:
                found[key] += settings.get(section, key, fallback="").split()
    return found


def pci_gpus(devices: Path) -> int:
    """Return how many GPUs of NVIDIA the kernel sees on the PCI bus."""
    cards = [path for path in devices.glob("*") if (path / "vendor").read_text().strip() == NVIDIA]
    return sum((path / "class").read_text().startswith(DISPLAY) for path in cards)


def tracking(code: int, text: str) -> dict[str, Any] | None:
    """Return how the node keeps time, from `chronyc -c tracking`; None where chrony does not answer.

    `local` means that the node is its own clock; `offset_s` is the distance to its clock in seconds.
    """
    fields = text.split(",")
    if code or len(fields) < 14:
        return None
    return {
        "reference": fields[1],
        "local": fields[0] == "7F7F0101",
        "stratum": int(fields[2]),
        "offset_s": float(fields[4]),
        "synchronised": fields[13] == "Normal",
    }


def docker(code: int, text: str) -> dict[str, Any] | None:
    """Return what Docker says about itself; None where it does not answer."""
    try:
        info = json.loads(text) if code == 0 else {}
    except ValueError:
        return None
    # without its daemon, the client still speaks for itself
    if not info.get("ServerVersion"):
        return None
    return {
        "version": info["ServerVersion"],
        "driver": info.get("Driver", ""),
        "root": info.get("DockerRootDir"),
        "security": info.get("SecurityOptions") or [],
    }


def security_modules(root: Path) -> dict[str, Any]:
    """Return who limits processes in the kernel, and whether that is the kernel of another machine."""

    def said(path: str) -> str:
        return (root / path).read_text().strip() if (root / path).is_file() else ""

    return {
        "apparmor": said("sys/module/apparmor/parameters/enabled") == "Y",
        "selinux": {"0": "permissive", "1": "enforcing"}.get(said("sys/fs/selinux/enforce"), ""),
        "container": (root / "run/systemd/container").exists() or (root / ".dockerenv").exists(),
    }


def mounted(path: str, table: str) -> list[str] | None:
    """Return the options of what is mounted at a path, from the kernel's table of mounts; None where nothing is."""
    rows = [line.split() for line in table.splitlines()]
    found = [row[3].split(",") for row in rows if row[1] == path]
    return found[-1] if found else None


def storage(root: Path, expected: str, run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return whether a storage is at its root, which the marker there says; one that hangs is waited for in vain."""
    code, found = run("timeout", "--signal=KILL", "5", "cat", str(root / MARKER))
    if code == 0 and found and found == expected:
        # it opens the marker for writing, and writes nothing
        opened = ("dd", "if=/dev/null", f"of={root / MARKER}", "conv=notrunc,nocreat", "status=none")
        if "Read-only file system" in run("timeout", "--signal=KILL", "5", *opened)[1]:
            return {"ok": False, "detail": f"{root} is read-only"}
        return {"ok": True, "detail": f"{root} has the id {found}"}
    if code == 0:
        return {"ok": False, "detail": f"{root} has the id {found} and not {expected or 'one that the site knows'}"}
    silent = code in (124, 137, -9)
    return {"ok": False, "detail": f"{root} does not answer" if silent else f"it is not mounted at {root}"}


def limit(chain: str, run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return whether the kernel limits the connections of one address by a chain of packet rules, or cannot."""
    code, rules = run("iptables", "--wait", "--list-rules", chain)
    if code:
        return {"ok": False, "detail": rules}
    if run("iptables", "--wait", "--check", "INPUT", "--jump", chain)[0]:
        return {"ok": False, "detail": "no packet comes to its rule"}
    found = re.search(r"--connlimit-above (\d+)", rules)
    if found:
        return {"ok": True, "detail": f"{found[1]} connections of one address"}
    if f"-A {chain} " in rules:
        return {"ok": True, "detail": "the kernel cannot count connections: nginx alone limits what they ask"}
    return {"ok": False, "detail": "its rule is not there"}


def firewall(table: str, run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return whether the kernel refuses what no rule of a table lets in, and how many rules do that."""
    code, rules = run("nft", "--stateless", "list", "table", "inet", table)
    if code:
        return {"ok": False, "detail": rules}
    if "hook input" not in rules or "policy drop" not in rules:
        return {"ok": False, "detail": f"the table {table} refuses nothing"}
    opened = sum(" dport " in rule and rule.endswith(" accept") for rule in rules.splitlines())
    return {"ok": True, "detail": f"all ports are closed but those of {opened} rules"}


def export(path: str, address: str, run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return whether an NFS client that needs no kernel can list the export."""
    code, out = run("nfs-ls", f"nfs://{address}{path}?version=4")
    return {"ok": code == 0, "detail": "" if code == 0 else out}


def library(path: Path, published: Path, run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return whether the library is the one from the reservoir, and whether the node's own loader can load it."""
    for file in (path, published):
        if not file.is_file():
            return {"ok": False, "detail": f"there is no {file}"}
    if path.read_bytes() != published.read_bytes():
        return {"ok": False, "detail": f"{path} is not the one from the reservoir"}
    code, out = run("ldd", str(path))
    return {"ok": code == 0 and "not found" not in out, "detail": out if code or "not found" in out else ""}


def database(name: str, run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return whether the owner of a database reaches it, and whether there is room on its disk.

    To keep these rows takes more than the memory that is given: they go into a file beside the data.
    """
    spill = ("--command=SET work_mem = '64kB'", "--command=SELECT count(*) FROM generate_series(1, 8192)")
    psql = ("psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--dbname={name}", *spill)
    code, out = run("timeout", "10", "runuser", f"--user={name}", "--", *psql)
    return {"ok": code == 0, "detail": "" if code == 0 else out or "it does not answer"}


def audit(folder: str, name: str, run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return whether the audit log can be written, and whether lines for it wait in the database."""
    user = ("timeout", "10", "runuser", f"--user={name}", "--")
    can = "cannot" if any(run(*user, "test", flag, folder)[0] for flag in ("-w", "-x")) else "can"
    late = "--command=SELECT count(*) FROM audit_events WHERE at < now() - interval '1 minute'"
    code, out = run(*user, "psql", "--no-psqlrc", "--tuples-only", "--no-align", f"--dbname={name}", late)
    said = out if code else f"{out} lines wait for longer than a minute"
    return {"ok": can == "can" and out == "0", "detail": f"{folder} {can} be written by {name}; {said}"}


def health(url: str, ca: str) -> dict[str, Any]:
    """Return whether the control API answers this node over TLS that the site's CA vouches for."""
    trust = ssl.create_default_context(cafile=ca)
    request = urllib.request.Request(f"{url}/api/v1/health")  # noqa: S310 - https, from the inventory
    try:
        with urllib.request.urlopen(request, timeout=10, context=trust) as answer:  # noqa: S310
            return {"ok": True, "detail": json.load(answer)}
    except urllib.error.HTTPError as error:
        return {"ok": False, "detail": problem(error)}
    except (OSError, ValueError) as error:
        return {"ok": False, "detail": str(error)}


def problem(error: urllib.error.HTTPError) -> str:
    """Return what the control API says is the matter, or else the status of its answer."""
    try:
        return str(json.load(error)["detail"])
    except (OSError, ValueError, LookupError, TypeError):
        return str(error)


def certificate(path: str, ca: str, crl: str, run: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    """Return whose certificate the node has, whether it counts by what the node itself knows, and what that is."""
    code, said = run("openssl", "verify", "-crl_check", "-CAfile", ca, "-CRLfile", crl, path)
    found = re.search(r"CN ?= ?([^,\n]+)", run("openssl", "x509", "-in", path, "-noout", "-subject")[1])
    revocations = Path(crl)
    return {
        "name": found[1].strip() if found else "",
        "until": until(path, run),
        "ok": code == 0,
        "detail": "" if code == 0 else said,
        "crl": hashlib.sha256(revocations.read_bytes()).hexdigest() if revocations.is_file() else "",
    }


def until(path: str, run: Callable[..., tuple[int, str]]) -> int | None:
    """Return when a certificate ends, in seconds since 1970; None where there is none."""
    found = re.search(r"notAfter=(.+)", run("openssl", "x509", "-in", path, "-noout", "-enddate")[1])
    return ssl.cert_time_to_seconds(found[1].strip()) if found else None


def nodes(code: int, text: str) -> dict[str, Any]:
    """Return the nodes that the control API knows, from the output of the command that lists them."""
    try:
        return {"ok": True, "detail": "", "nodes": json.loads(text)} if code == 0 else _unknown(text)
    except ValueError:
        return _unknown(text)


def _unknown(detail: str) -> dict[str, Any]:
    return {"ok": False, "detail": detail, "nodes": []}


if __name__ == "__main__":
    main()
