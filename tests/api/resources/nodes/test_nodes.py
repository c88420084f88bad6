"""Nodes and the heartbeats that make them."""

from __future__ import annotations

from typing import Any

import pytest

from api.resources.nodes.heartbeats import interval_of
from common.protocol import HEARTBEAT_PATH, HeartbeatReply
from tests.api.cluster import V1, Cluster, ok, problems, refused
from tests.fakes.heartbeats import beat

pytestmark = pytest.mark.anyio


async def test_a_node_comes_to_be_by_its_heartbeat(cluster: Cluster) -> None:
    assert await ok(cluster.admin.get(f"{V1}/nodes")) == []
    await cluster.add_node("worker1", 2)
    (node,) = await ok(cluster.admin.get(f"{V1}/nodes"))
    assert (node["name"], node["address"], node["port"], node["state"]) == ("worker1", "192.0.2.10", 6001, "ready")
    assert (node["agent_version"], node["enforcement"], node["cpu_milli"]) == ("0.1.0", "none", 8000)
    assert [(gpu["index"], gpu["uuid"], gpu["simulated"]) for gpu in node["gpus"]] == [
        (0, "GPU-worker1-0", True),
        (1, "GPU-worker1-1", True),
    ]
    await refused(cluster.admin.get(f"{V1}/nodes/worker9"), 404)


async def test_gpus_come_and_go(cluster: Cluster) -> None:
    await cluster.add_node("worker1", 4)
    await cluster.add_node("worker1", 2)
    assert len((await ok(cluster.admin.get(f"{V1}/nodes/worker1")))["gpus"]) == 2
    await cluster.add_node("worker1", 16)
    assert len((await ok(cluster.admin.get(f"{V1}/nodes/worker1")))["gpus"]) == 16


async def test_the_agent_is_told_when_to_report_next(cluster: Cluster) -> None:
    answer = await cluster.heartbeat()
    assert list(answer.json()) == ["interval_s"]
    told = HeartbeatReply.model_validate_json(answer.content).interval_s
    assert 4.5 <= told <= 5.0
    assert told == interval_of("worker1", 5.0)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"sequence": 0}, "sequence"),
        ({"port": 70000}, "port"),
        ({"node_info": None}, "node_info"),
        ({"containers": [{"id": "x"}]}, "containers[0].session_id"),
    ],
)
async def test_bad_heartbeats(cluster: Cluster, change: dict[str, Any], where: str) -> None:
    response = await _raw(cluster, change)
    assert response.status_code == 422
    assert problems(response)[0]["where"] == where


async def test_what_a_later_release_tells_besides_is_passed_over(cluster: Cluster) -> None:
    assert (await _raw(cluster, {"extra": 1})).status_code == 200
    await cluster.settle()
    assert (await ok(cluster.admin.get(f"{V1}/nodes/worker1")))["state"] == "ready"


async def _raw(cluster: Cluster, change: dict[str, Any]) -> Any:
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}) as agent:
        return await agent.post(HEARTBEAT_PATH, json={**beat(1).model_dump(mode="json"), **change})


async def test_a_node_with_more_than_128_gpus_and_slices_is_refused(cluster: Cluster) -> None:
    body = beat(1).model_dump(mode="json")
    body["node_info"]["gpus"] = [{**body["node_info"]["gpus"][0], "index": n, "uuid": f"GPU-{n}"} for n in range(129)]
    response = await _raw(cluster, body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/node_info/gpus"


async def test_one_bad_node_does_not_silence_the_others(cluster: Cluster) -> None:
    """Two GPUs with one identity cannot be written; the other node's heartbeat in the same batch can."""
    body = beat(1, name="broken").model_dump(mode="json")
    body["node_info"]["gpus"] *= 2
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "broken"}) as agent:
        await ok(agent.post(HEARTBEAT_PATH, json=body))
    await cluster.heartbeat("worker1")
    await cluster.settle()
    assert [node["name"] for node in await ok(cluster.admin.get(f"{V1}/nodes"))] == ["worker1"]
