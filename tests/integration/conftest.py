"""Integration tests run side by side, a file on one worker; each worker has a Docker Engine of its own for agents."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.integration.agent.conftest import Authority
from tests.integration.own_engine import OwnEngine, own_engine
from tests.integration.slapd import Slapd, running_slapd

COMPUTE = ("reservoir", "site")
"""Folders of files that build and install; all others wait for services most of the time."""
LONGEST = (
    *("reservoir/test_closed_network.py", "reservoir/test_targets.py", "reservoir/test_installer.py"),
    *("reservoir/test_python_sets.py", "site/test_cluster_engine.py", "site/test_foreign_nodes.py"),
    *("test_kubernetes.py", "test_rollout.py", "test_slurm.py", "test_volumes.py"),
)
"""Files that are begun before others of their kind: nobody waits for one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let files that compute and files that wait take turns, so that workers do not want the same at a time."""
    here = Path(__file__).parent
    files = dict.fromkeys(item.path.relative_to(here) for item in items if item.path.is_relative_to(here))
    order = {here / path: place for place, path in enumerate(in_turns(list(files)))}
    items.sort(key=lambda item: order.get(item.path, -1))


def in_turns(files: list[Path]) -> list[Path]:
    """Return files with those of both kinds spread evenly over all."""
    places: dict[Path, float] = {}
    for computes in (True, False):
        kind = [path for path in files if (path.parts[0] in COMPUTE) == computes]
        kind.sort(key=lambda path: str(path) not in LONGEST)
        places |= {path: (number + 0.5) / len(kind) for number, path in enumerate(kind)}
    return sorted(files, key=places.__getitem__)


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the tests of this worker mounted, and the agents of GnuPG that they started, are gone behind the last."""
    folder = f"{tmp_path_factory.getbasetemp()}/"
    yield
    mounts = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    assert [mount for mount in mounts if mount.startswith(folder)] == []
    deadline = time.monotonic() + 60
    # one that was told to end does so in its own time
    while left := [agent for agent in _agents() if folder in agent]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def _agents() -> list[str]:
    found = subprocess.run(["pgrep", "--list-full", "gpg-agent"], capture_output=True, text=True, check=False)
    return found.stdout.splitlines()


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
