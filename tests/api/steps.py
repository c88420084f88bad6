"""A cluster that is ready for sessions, and short words for what the tests do with them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from api.clock import now
from api.control import manager as managing
from tests.api.cluster import V1, Cluster, ok


@pytest.fixture
async def ready(cluster: Cluster) -> Cluster:
    """A cluster with a node of four GPUs, an image and a project that may use all of it."""
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    return cluster


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is tried again be due at once."""
    monkeypatch.setattr(managing, "RETRY_S", (0.0,))


def body(name: str = "demo", project: str = "team-a", **more: Any) -> dict[str, Any]:
    """Return a request of a session."""
    return {"name": name, "project": project, "image": "python", "gpu_milli": 500, **more}


async def run(cluster: Cluster, name: str = "demo", **more: Any) -> dict[str, Any]:
    """Submit a session and return it as it runs."""
    await cluster.submit(name, **more)
    await cluster.manager.settle()
    session = await cluster.session(name)
    assert session["state"] == "RUNNING", session
    return session


async def delete(cluster: Cluster, name: str = "demo") -> Any:
    return await ok(wish(cluster, name))


async def wish(cluster: Cluster, name: str) -> httpx.Response:
    """Ask for a session's deletion and return the answer as it comes."""
    return await cluster.admin.delete(f"{V1}/sessions/{name}", params={"project": "team-a"})


def pass_time(cluster: Cluster, seconds: float) -> None:
    """Let the reconcilers' clock be so far ahead of ours; nodes count as lost only after their time to report."""
    rules = cluster.manager._rules
    rules._clock = lambda: now() + timedelta(seconds=seconds)
