"""Sessions from submission to their end, with machines that exist only in memory."""

from __future__ import annotations

import pytest

from tests.unit.api.conftest import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio


async def test_two_run_and_the_third_waits_for_the_quota(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 1000)
    for name in ("one", "two", "three"):
        await cluster.submit(name)
    await cluster.manager.settle()
    assert await cluster.states() == {"one": "RUNNING", "two": "RUNNING", "three": "PENDING"}
    assert (await cluster.session("three"))["reason"] == "team-a holds 1 of its 1 GPU"

    await ok(cluster.admin.delete(f"{V1}/sessions/one", params={"project": "team-a"}))
    assert (await cluster.session("one"))["state"] == "TERMINATING"
    await cluster.manager.settle()
    assert await cluster.states() == {"one": "TERMINATED", "two": "RUNNING", "three": "RUNNING"}
