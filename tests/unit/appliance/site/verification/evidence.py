"""What nodes of the example say about themselves where all is well, and what is made of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from appliance.site.model import Site
from appliance.site.verdict import Verdict
from appliance.site.verification import judge
from common.checks import Check

STARTED = {"since": 1_767_225_600, "newer": [], "replaced": False}

APT = "https://reservoir:8443/apt/"

PYPI = "https://reservoir:8443/pypi/simple/"

NOW = datetime(2026, 1, 1, tzinfo=UTC)

LATER = int((NOW + timedelta(days=31)).timestamp())


def answer(name: str, *, until: int = LATER, wrong: str = "") -> dict[str, Any]:
    """What a service answers, or what is wrong with it."""
    return {"ok": not wrong, "detail": wrong or "HTTP 200", "until": until, "url": f"https://{name}/"}


def node(**special: Any) -> dict[str, Any]:
    return {
        "os": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0",
        "machine": "x86_64",
        "penstock": {},
        "packages": {"chrony": "4.3-2"},
        "services": {"chrony.service": "active"},
        "enabled": {"chrony.service": "enabled"},
        "running": {"chrony.service": STARTED},
        "ports": [22],
        "default_routes": [],
        "outside": "Network is unreachable",
        "package_sources": [APT],
        "package_proxies": [],
        "pip_sources": {"index-url": [PYPI], "extra-index-url": [], "find-links": []},
        "time": {"reference": "10.71.8.10", "local": False, "stratum": 9, "offset_s": 0.00002, "synchronised": True},
        "docker": None,
        "security_modules": {"apparmor": True, "selinux": "", "container": False},
        "pci_gpus": 0,
        "api": {"ok": True, "detail": ""},
        "certificate": {"name": "", "until": LATER, "ok": True, "detail": "", "crl": "c0de"},
        "authority": LATER,
        "calls": {name: answer(name) for name in ("console", "API", "apps", "release", "index")},
        "mounts": {},
        "storages": {},
        "exports": {},
        "limits": {},
        "firewall": {"ok": True, "detail": "all ports are closed but those of 4 rules"},
        **special,
    }


def ways(**container: str) -> dict[str, Any]:
    """What a container and its worker are told where all is well, or what is said instead to the container."""
    services = {f"10.71.8.10:{port}": "" for port in (443, 56789, 9443, 8443)}
    closed = {"10.71.8.13:2049": "Connection refused", "172.17.0.9:8765": "No route to host"}
    told = {**services, **closed, **container}
    return {"tried": {way: {"container": said, "node": ""} for way, said in told.items()}, "detail": ""}


CONFINED = ["name=apparmor", "name=seccomp,profile=default", "name=cgroupns"]


def gpu(index: int, **special: Any) -> dict[str, Any]:
    return {"uuid": f"GPU-{index}", "parent": "", "model": "NVIDIA A100-SXM4-80GB", "simulated": True, **special}


def verdict(site: Site, evidence: dict[str, Any], silent: dict[str, str] | None = None) -> Verdict:
    return judge(site, evidence, silent or {}, "2026-01-01T00:00:00Z")


def of(found: Verdict, node: str, identity: str, thing: str = "") -> Check:
    """The check of a node by its id."""
    return next(c for c in found.nodes[node].checks if c.id == identity and c.subject.endswith(thing))


def bad(site: Site, evidence: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = verdict(site, evidence)
    return [(name, c.name, c.evidence) for name, node in found.nodes.items() for c in node.checks if c.state != "ok"]
