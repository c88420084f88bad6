"""Integration tests run side by side, a file on one worker; files that look at the engine's containers take turns."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.postgresql import new_database, running_server
from tests.api.cluster import Cluster, running_cluster

TURN = Path(tempfile.gettempdir()) / "penstock-tests-engine.lock"


@pytest.fixture(scope="module", autouse=True)
def turn_at_the_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let one file at a time have agents on the engine: each takes every container of a session for its own."""
    mine = [item for item in request.session.items if item.path == request.path]
    if not any("engine" in getattr(item, "fixturenames", ()) for item in mine):
        yield
        return
    with TURN.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Path]:
    """A running PostgreSQL: its folder, which `new_database` takes."""
    with running_server() as folder:
        yield folder


@pytest.fixture
async def cluster(postgresql_server: Path) -> AsyncIterator[Cluster]:
    """The control API on PostgreSQL, with a node of one GPU, an image, and a project that may use it."""
    async with running_cluster(new_database(postgresql_server)) as running:
        await running.add_node("worker1", 1)
        await running.add_image()
        await running.add_project("team-a", 4000)
        yield running
