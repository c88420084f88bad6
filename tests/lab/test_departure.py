"""A worker that leaves the users' site at its end, and would join it again."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.lab.conftest import JOINS, Sites
from tests.lab.site import PYTHON, SITE_FILE, LabSite

LEAVES = "/root/leaves.yml"
ATTACH = """
import sys
from pathlib import Path
from appliance.cli.files import read_site
from appliance.site import membership
print(membership.attach(read_site(Path(sys.argv[1])), sys.argv[2], lambda _: None))
"""


def on_controller(site: LabSite, *words: str) -> str:
    done = site.in_node(site.reservoir, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("removed")
def test_a_worker_leaves_with_its_agent_and_its_certificate(deployed: Sites) -> None:
    site = deployed["users"]
    site.login()
    site.clear()
    text = on_controller(site, "cat", SITE_FILE)
    site.put(LEAVES, text)
    address = next(node["address"] for node in yaml.safe_load(text)["nodes"] if node["name"] == JOINS)

    told = json.loads(on_controller(site, "penstock", "node", "info", address, "-f", LEAVES, "-o", "json"))
    links = json.loads(site.in_node(JOINS, "ip", "-j", "-4", "addr").stdout)
    have = {link["ifname"]: [each["local"] for each in link["addr_info"]] for link in links if link["ifname"] != "lo"}
    assert {each["name"]: each["addresses"] for each in told["interfaces"] if each["addresses"]} == have
    assert on_controller(site, PYTHON, "-c", ATTACH, LEAVES, JOINS) == "active\n"

    on_controller(site, "penstock", "node", "remove", JOINS, "-f", LEAVES, "--no-deploy", "--yes")
    assert JOINS not in on_controller(site, "cat", LEAVES)
    assert site.in_node(JOINS, "systemctl", "is-active", "penstock-agent.service").stdout == "inactive\n"
    left = site.in_node(JOINS, "ls", "/etc/penstock/pki").stdout.split()
    assert "node.key" not in left
    assert "ca.crt" in left

    on_controller(site, "penstock", "node", "add", address, "-f", LEAVES, "--name", JOINS, "--no-deploy", "--yes")
    nodes = {node["name"]: node for node in yaml.safe_load(on_controller(site, "cat", LEAVES))["nodes"]}
    assert (nodes[JOINS]["address"], nodes[JOINS]["roles"]) == (address, ["worker"])
