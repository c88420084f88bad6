"""The two sites of the lab."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import yaml

from tests.lab.journey import ROOT

ZONE = "Asia/Kathmandu"
BACKUP_HOUR = (datetime.now(ZoneInfo(ZONE)).hour + 12) % 24
"""Half a day away: at its own hour a backup would be taken in the middle of a test that counts on there being none."""

OTHER = {
    "name": "tests-other",
    "nodes": [
        {
            "name": "node1",
            "address": "10.71.10.10",
            "release": "trixie",
            "roles": ["reservoir", "master", "worker"],
            "agent_port": 6001,
            "simulated_gpus": {"count": 2},
        }
    ],
    "storage": [{"kind": "external", "name": "shared", "path": "/srv/shared"}],
    "time": {"zone": ZONE},
    "backup": {"hour": BACKUP_HOUR},
}
"""What a site has once, reservoir and master, on the Debian release on which the users' site does not have them."""


def users_site() -> dict[str, Any]:
    """The example's site under another name and in another network, so that a demo may stay up beside the tests.

    Its workers have eight GPUs each, as those of the reference scenario, and it has storage on both releases.
    """
    site: dict[str, Any] = yaml.safe_load((ROOT / "inventory" / "example" / "site.yml").read_text())
    site["name"] = "tests"
    site["time"] = {"zone": ZONE}
    site["backup"] = {"hour": BACKUP_HOUR}
    site["logs"] = {"gather": True}
    # administrators may order backups from elsewhere, and a ladder may come to a reboot
    site["firewall"]["networks"] = ["10.71.9.0/24"]
    # nobody's name server knows them but that of the browser of these tests
    site["edge"] = {"names": ["console.gpu.test"], "apps_name": "apps.gpu.test"}
    site["repair"] = {"controller": True, "automatic": ["engine"], "reboot": True}
    for node in site["nodes"]:
        node["address"] = node["address"].replace("10.71.8.", "10.71.9.")
        if "simulated_gpus" in node:
            node["simulated_gpus"]["count"] = 8
        if node["name"] == "worker1":
            node["roles"].append("storage")
    second = {"kind": "nfs", "name": "scratch", "node": "worker1", "path": "/srv/scratch", "clients": []}
    site["storage"].append(second)
    return site


def with_new_roles(site: dict[str, Any]) -> dict[str, Any]:
    """The users' site with roles on nodes that know the packages for them and have not installed any.

    It has no external storage: the nodes that become workers here have no such folder. Its logs stay on their nodes.
    """
    roles = {
        "master1": ["reservoir", "worker"],
        "worker1": ["storage"],
        "worker2": ["storage"],
        "storage1": ["master", "worker"],
    }
    agent = {"agent_port": 6001, "simulated_gpus": {"count": 2}}
    kept = ("name", "address", "release")
    nodes = [
        {key: node[key] for key in kept if key in node}
        | {"roles": roles[node["name"]]}
        | (agent if "worker" in roles[node["name"]] else {})
        for node in site["nodes"]
    ]
    shared = [each for each in site["storage"] if each["kind"] != "external"]
    storage = [{**each, "node": "worker2"} if each["name"] == "archive" else each for each in shared]
    return {**site, "nodes": nodes, "storage": storage, "session_storage": None, "logs": {"gather": False}}


def write(site: dict[str, Any], path: Path) -> Path:
    """Write a site file."""
    path.write_text(yaml.safe_dump(site, sort_keys=False))
    return path
