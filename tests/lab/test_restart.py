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
        site.until(lambda: _is_well(site), "the doctor finds nothing", RESTART_S)
        site.until_states({"trains": "RUNNING"}, "the session runs again")

    after = site.json("get", "trains")
    assert (after["id"], after["attempt"]) == (before["id"], before["attempt"] + 1)
    assert site.json("project", "get", PROJECT)["used_milli"] == 500


def _is_well(site: LabSite) -> bool:
    return site.try_penstock("doctor").returncode == 0 and all(
        node["state"] == "ready" for node in site.json("node", "list")
    )
