"""The deploy of both sites: what it leaves is what it wants, on both Debian releases, and Molecule's checks hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.lab.conftest import SITES, Sites, in_both
from tests.lab.journey import ROOT
from tests.lab.site import LabSite
from tests.lab.sites import with_new_roles

CHECKS = sorted((ROOT / "molecule").glob("*/verify.yml"))
SITE_FILE = "/etc/penstock/site.yml"


@pytest.fixture(scope="module")
def second_deploys(deployed: Sites) -> dict[str, dict[str, Any]]:
    """What a second deploy of each site says."""
    return in_both(deployed, _deploy)


def _deploy(site: LabSite) -> dict[str, Any]:
    words = ("penstock", "site", "deploy", "-f", SITE_FILE, "--bundle", "/media/penstock", "-o", "json")
    deploy = site.in_node(site.reservoir, *words)
    assert deploy.returncode == 0, deploy.stdout + deploy.stderr
    return dict(json.loads(deploy.stdout))


@pytest.mark.parametrize("site", SITES)
def test_a_second_deploy_changes_nothing(deployed: Sites, second_deploys: dict[str, dict[str, Any]], site: str) -> None:
    verdict = second_deploys[site]
    changed = {name: node["changed"] for name, node in verdict["nodes"].items()}
    assert changed == dict.fromkeys(deployed[site].containers, 0)
    assert verdict["changes"] == 0


def test_a_dry_run_of_new_roles_on_nodes_that_know_their_packages(deployed: Sites) -> None:
    users = deployed["users"]
    wanted = yaml.safe_dump(with_new_roles(yaml.safe_load(users.site.read_text())))
    counts = users.dry_run(wanted)
    assert counts.keys() == users.containers.keys()
    for node, each in counts.items():
        assert (each["failed"], each["unreachable"]) == (0, 0), node
        assert each["changed"] > 0, node


@pytest.mark.parametrize("check", CHECKS, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("site", SITES)
def test_what_molecule_checks_holds(deployed: Sites, site: str, check: Any) -> None:
    """Run on the controller, as the product's playbooks are, with the inventory of the deploy."""
    done = deployed[site].play(check)
    assert done.returncode == 0, done.stdout + done.stderr
