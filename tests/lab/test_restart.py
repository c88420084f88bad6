"""A site that lost its power: all nodes end at once, and come back one after the other."""

from __future__ import annotations

import json

import pytest

from tests.lab.journey import PROJECT
from tests.lab.site import LabSite, docker

RESTART_S = 180.0


@pytest.fixture
def site(journey: LabSite) -> LabSite:
    journey.project()
    journey.clear()
    return journey


def faults(site: LabSite) -> set[tuple[str, str, str]]:
    """Return what the doctor calls failed: which check, where, of what."""
    told = json.loads(site.try_penstock("doctor", "-o", "json").stdout)
    return {(check["node"], check["check"], check["thing"]) for check in told if check["state"] == "fail"}


def test_a_site_that_lost_its_power_is_well_by_itself(site: LabSite) -> None:
    """Row B7, for all nodes, those that others wait for last; a training that ran begins again."""
    site.submit("trains")
    site.until_states({"trains": "RUNNING"}, "the session runs")
    before, known = site.json("get", "trains"), faults(site)

    with site.phase("end all nodes at once, and start them, workers first"):
        docker("kill", *site.containers.values())
        waited_for = {node["name"] for node in site.lab["nodes"] if {"master", "reservoir"} & {*node["roles"]}}
        for node in sorted(site.containers, key=lambda name: name in waited_for):
            docker("start", site.containers[node])
        # what is told before the agents are back is what was so before
        site.until(lambda: site.json("get", "trains")["attempt"] > before["attempt"], "its end is told", RESTART_S)
        site.until_states({"trains": "RUNNING"}, "the session runs again")
        try:
            site.until(lambda: faults(site) <= known, "the doctor finds nothing new", RESTART_S)
        except TimeoutError:
            pytest.fail(f"the doctor finds {faults(site) - known}")

    after = site.json("get", "trains")
    assert (after["id"], after["attempt"]) == (before["id"], before["attempt"] + 1)
    assert {node["state"] for node in site.json("node", "list")} == {"ready"}
    assert site.json("project", "get", PROJECT)["used_milli"] == 500
