"""A site whose nodes all restart at once, as after a loss of power."""

from __future__ import annotations

import pytest

from tests.lab.journey import PROJECT
from tests.lab.site import LabSite, docker

RESTART_S = 180.0


@pytest.fixture
def site(journey: LabSite) -> LabSite:
    journey.project()
    journey.clear()
    return journey


def test_a_site_whose_nodes_all_restart_is_well_by_itself(site: LabSite) -> None:
    """Row B7, for all nodes; a training that ran begins again."""
    site.submit("trains")
    site.until_states({"trains": "RUNNING"}, "the session runs")
    before = site.json("get", "trains")

    with site.phase("restart all nodes at once"):
        docker("restart", *site.containers.values())
        # what is told before the agents are back is what was so before
        site.until(lambda: site.json("get", "trains")["attempt"] > before["attempt"], "its end is told", RESTART_S)
        site.until_states({"trains": "RUNNING"}, "the session runs again")
        site.until(lambda: site.try_penstock("doctor").returncode == 0, "the doctor finds nothing", RESTART_S)

    after = site.json("get", "trains")
    assert (after["id"], after["attempt"]) == (before["id"], before["attempt"] + 1)
    assert {node["state"] for node in site.json("node", "list")} == {"ready"}
    assert site.json("project", "get", PROJECT)["used_milli"] == 500
