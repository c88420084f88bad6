"""Two agents that report as one node: the living one is told, comes back, and the node says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from api.clock import now
from api.resources.nodes.heartbeats import CONTESTED_FOR, Heartbeats
from common.protocol import HEARTBEAT_PATH, Heartbeat
from tests.api.cluster import V1, Cluster, ok, refused
from tests.fakes.heartbeats import beat

pytestmark = pytest.mark.anyio


async def post(cluster: Cluster, heartbeat: Heartbeat | dict[str, Any]) -> httpx.Response:
    body = heartbeat if isinstance(heartbeat, dict) else heartbeat.model_dump(mode="json")
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}) as agent:
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


@pytest.mark.parametrize("field", ["boot", "address", "name", "os", "agent_version", "region", "unready"])
async def test_texts_of_heartbeats_have_a_length(cluster: Cluster, field: str) -> None:
    body = beat(1).model_dump(mode="json")
    (body if field in body else body["node_info"])[field] = "x" * 5000
    error = await refused(post(cluster, body), 422)
    assert error["where"].split(".")[-1] == field
