"""What containers find of their site: its packages, its authority, its resolvers."""

from __future__ import annotations

from itertools import pairwise

import docker
import pytest

from appliance.agent.docker import resolvers
from tests.integration.agent.conftest import PACKAGE_INDEX, Agent, Authority
from tests.integration.agent.test_gang_networks import Make, inside, launch


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_pip_finds_the_sites_index_and_its_authority(
    agent: Agent, engine: docker.DockerClient, spec: Make, authority: Authority, *, again: bool
) -> None:
    if again:
        launch(agent, spec())
    one = spec()
    launch(agent, one)
    told = inside(engine, one, "cat", "/etc/xdg/pip/pip.conf")
    assert f"index-url = {PACKAGE_INDEX}\n" in told
    place = told.partition("cert = ")[2].splitlines()[0]
    assert inside(engine, one, "cat", place) == authority.ca.read_text().strip()
    assert inside(engine, one, "sh", "-c", f"echo >{place}; echo $?").splitlines()[-1] == "1"


def test_no_server_of_the_internet_is_asked(agent: Agent, engine: docker.DockerClient, spec: Make) -> None:
    one = spec()
    launch(agent, one)
    told = inside(engine, one, "cat", "/etc/resolv.conf").split()
    servers = [value for word, value in pairwise(told) if word == "nameserver"]
    assert servers == resolvers.of_node()
