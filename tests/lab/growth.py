"""The growth of a site by a worker, which is down in the first deploy that has it."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from tests.lab.site import LabSite

SMALLER = "/root/site-without-one.yml"
LARGER = "/root/site.yml"
KEPT_UNITS = (
    *("chrony.service", "containerd.service", "docker*.service", "nfs-ganesha.service", "nginx.service"),
    *("penstock-*.service", "postgresql@*.service"),
)
"""Services that nobody else's join may restart, as `systemctl show` takes their names."""

Units = dict[tuple[str, str], str]
"""Runs of services, by node and name."""


@dataclass
class Growth:
    """What came of a deploy with a `worker` that is new and down, and services elsewhere `before` it and `after`."""

    worker: str
    code: int
    said: str
    before: Units
    after: Units


def grow(site: LabSite, worker: str) -> Growth:
    """Deploy a site without one of its workers, then with it while it does not answer; the next one catches it up."""
    site.up("--no-deploy")
    full = yaml.safe_load(site.site.read_text())
    site.put(LARGER, yaml.safe_dump(full))
    site.put(SMALLER, yaml.safe_dump({**full, "nodes": [node for node in full["nodes"] if node["name"] != worker]}))
    site.install()
    if not site.is_deployed():
        with site.phase(f"deploy {site.name} without {worker}"):
            code, said = site.deploy(SMALLER)
            assert code == 0, said
    others = [node for node in site.containers if node != worker]
    before = units(site, others)
    assert before
    site.in_node(worker, "systemctl", "stop", "ssh.service")
    try:
        with site.phase(f"deploy {site.name} while {worker} is down"):
            code, said = site.deploy(LARGER)
    finally:
        site.in_node(worker, "systemctl", "start", "ssh.service")
    return Growth(worker, code, said, before, units(site, others))


def units(site: LabSite, nodes: list[str]) -> Units:
    """Return which runs of services there are on nodes, without those that come to their end."""
    found: Units = {}
    for node in nodes:
        words = ("systemctl", "show", "--state=running", "--property=Id,InvocationID,Type,SubState", *KEPT_UNITS)
        for block in site.in_node(node, *words).stdout.split("\n\n"):
            shown = dict(line.split("=", 1) for line in block.splitlines())
            if shown.get("SubState") == "running" and shown["Type"] != "oneshot":
                found[node, shown["Id"]] = shown["InvocationID"]
    return found
