"""Two agents that report as one node: the living one is told, comes back, and the node says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from api.clock import now
from api.endpoints.app import set_up
from api.resources.nodes.heartbeats import CONTESTED_FOR, Heartbeats
from common.protocol import HEARTBEAT_PATH, MACHINE_HEADER, Heartbeat
from tests.api.cluster import V1, Cluster, ok, refused
from tests.fakes.heartbeats import beat

pytestmark = pytest.mark.anyio


async def post(cluster: Cluster, heartbeat: Heartbeat | dict[str, Any], machine: str = "machine-1") -> httpx.Response:
    body = heartbeat if isinstance(heartbeat, dict) else heartbeat.model_dump(mode="json")
    async with cluster.client(
        **{"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1", MACHINE_HEADER: machine}
    ) as agent:
        return await agent.post(HEARTBEAT_PATH, json=body)


async def message(cluster: Cluster) -> str:
    await cluster.settle()
    return str((await ok(cluster.admin.get(f"{V1}/nodes/worker1")))["message"])


async def test_one_heartbeat_of_another_agent_silences_nobody(cluster: Cluster) -> None:
    await ok(post(cluster, beat(5)))
    await ok(post(cluster, beat(1, "x")))
    error = await refused(post(cluster, beat(6)), 409)
    assert "another agent reports as worker1" in error["reason"]
    await ok(post(cluster, beat(7, "boot-2")))
    assert (await message(cluster)).startswith("another agent reports as worker1")
    heartbeats: Heartbeats = cluster.app.state.heartbeats
    heartbeats.receive(beat(8, "boot-2"), now() + CONTESTED_FOR + timedelta(seconds=1))
    assert await message(cluster) == ""


async def test_a_cloned_disk_takes_no_node_from_the_machine_that_has_it(cluster: Cluster) -> None:
    """Both have the certificate, the name and the address of the one; each new boot of one displaced the other."""
    await ok(post(cluster, beat(1)))
    for number in range(3):
        error = await refused(post(cluster, beat(1, f"clone-{number}"), "machine-2"), 409)
        assert "another machine reports as worker1" in error["reason"]
        await ok(post(cluster, beat(2 + number)))
    said = await message(cluster)
    assert said.startswith("another machine reports as worker1 from 127.0.0.1 and is refused")
    assert await message(cluster) == said, "it stays"


async def test_a_cloned_disk_that_reports_first_after_a_start_of_the_api_takes_no_node(cluster: Cluster) -> None:
    await ok(post(cluster, beat(1)))
    await cluster.settle()
    set_up(cluster.app, cluster.settings, cluster.database, cluster.engine, cluster.clock)
    async with cluster.app.router.lifespan_context(cluster.app):
        error = await refused(post(cluster, beat(1, "clone"), "machine-2"), 409)
        assert "another machine reports as worker1" in error["reason"]
        await ok(post(cluster, beat(2)))


@pytest.mark.parametrize("field", ["boot", "address", "name", "os", "agent_version", "region", "unready"])
async def test_texts_of_heartbeats_have_a_length(cluster: Cluster, field: str) -> None:
    body = beat(1).model_dump(mode="json")
    (body if field in body else body["node_info"])[field] = "x" * 5000
    error = await refused(post(cluster, body), 422)
    assert error["where"].split(".")[-1] == field
