"""Integration tests run side by side, a file on one worker; each worker has a Docker Engine of its own for agents."""

from __future__ import annotations

from collections.abc import Iterator

import docker
import pytest

from tests.integration.agent.conftest import Authority
from tests.integration.own_engine import OwnEngine, own_engine
from tests.integration.slapd import Slapd, running_slapd


@pytest.fixture(scope="session")
def worker_engine() -> Iterator[OwnEngine]:
    with own_engine() as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def at_the_own_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let files that use the engine be where it is, from their first fixture to their last."""
    mine = [item for item in request.session.items if item.path == request.path]
    if not any("engine" in getattr(item, "fixturenames", ()) for item in mine):
        yield
        return
    running: OwnEngine = request.getfixturevalue("worker_engine")
    with running.entered():
        yield


@pytest.fixture(scope="session")
def engine(worker_engine: OwnEngine) -> Iterator[docker.DockerClient]:
    """The engine of this worker."""
    client = docker.DockerClient(base_url=worker_engine.address)
    yield client
    client.close()


@pytest.fixture(scope="module")
def slapd(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    """A directory; the file that asks for it has the fixture `authority`."""
    with running_slapd(authority, tmp_path_factory.mktemp("slapd")) as server:
        yield server
