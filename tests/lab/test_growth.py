"""A worker that joins a site, and is down when it does: it is named, caught up, and nobody else is disturbed."""

from __future__ import annotations

from common.errors import PartialError
from tests.lab.conftest import JOINS, Sites
from tests.lab.growth import Growth


def test_a_deploy_names_a_worker_that_is_down_and_goes_on(growth: Growth) -> None:
    assert growth.code == PartialError.exit_code, growth.said
    assert JOINS in growth.said
    assert "run the command again" in growth.said


def test_a_worker_that_joins_restarts_nothing_elsewhere(growth: Growth) -> None:
    names = {name for _, name in growth.before}
    assert names >= {"chrony.service", "docker.service", "nfs-ganesha.service", "penstock-agent.service"}
    assert growth.before == growth.after


def test_the_next_deploy_catches_it_up(growth: Growth, deployed: Sites) -> None:
    assert growth.worker == JOINS
    site = deployed["users"]
    agent = site.in_node(JOINS, "systemctl", "is-active", "penstock-agent.service")
    assert agent.stdout == "active\n"
