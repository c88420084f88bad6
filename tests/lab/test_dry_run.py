"""A dry run on bare nodes: every playbook comes to its end, and nothing of it stays."""

from __future__ import annotations

import pytest

from tests.lab.conftest import SITES, Sites
from tests.lab.site import Counts, LabSite


@pytest.mark.parametrize("site", SITES)
def test_no_task_fails_and_each_node_would_be_changed(bare: Sites, dry_runs: dict[str, Counts], site: str) -> None:
    counts = dry_runs[site]
    assert counts.keys() == bare[site].containers.keys()
    for node, each in counts.items():
        assert (each["failed"], each["unreachable"]) == (0, 0), node
        assert each["changed"] > 0, node


@pytest.mark.usefixtures("dry_runs")
@pytest.mark.parametrize("site", SITES)
def test_the_nodes_stay_bare(bare: Sites, site: str) -> None:
    lab = bare[site]
    for node in lab.containers:
        assert lab.in_node(node, "apt-get", "indextargets", "--format", "$(SITE)").stdout.split() == []
        left = lab.in_node(node, "ls", "-d", "/etc/penstock", "/etc/docker", "/etc/nginx", "/opt/penstock/agent")
        assert left.stdout == ""
    # the lock is there since what deploys was installed
    assert _controller(lab) == ["known_hosts", "lock"]


def _controller(lab: LabSite) -> list[str]:
    """What the folder of the site's controller holds."""
    return lab.in_node(lab.reservoir, "ls", "/var/lib/penstock/site").stdout.split()
