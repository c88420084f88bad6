"""Nodes and the heartbeats that make them."""

from __future__ import annotations

from typing import Any

import pytest

from api.clock import now
from api.resources.nodes.heartbeats import Heartbeats
from common.protocol import HEARTBEAT_PATH, ContainerState, ContainerStatus, Heartbeat
from tests.api.cluster import V1, Cluster, inventory, ok, problems, refused

pytestmark = pytest.mark.anyio


def beat(
    sequence: int, boot: str = "boot-1", status: ContainerStatus | None = None, name: str = "worker1"
) -> Heartbeat:
    containers = [ContainerState(id="c", session_id="s", status=status)] if status else []
    return Heartbeat(
        name=name,
        address="192.0.2.10",
        port=6001,
        boot=boot,
        sequence=sequence,
        inventory=inventory(name, 1),
        containers=containers,
    )


def test_late_and_repeated_heartbeats_are_left_out() -> None:
    heartbeats = Heartbeats()
    assert heartbeats.receive(beat(2), now())
    assert not heartbeats.receive(beat(2), now())
    assert not heartbeats.receive(beat(1), now())
    assert heartbeats.receive(beat(3), now())


def test_a_new_run_of_the_agent_counts_from_the_start_and_the_old_one_is_over() -> None:
    heartbeats = Heartbeats()
    assert heartbeats.receive(beat(9, "boot-1"), now())
    assert heartbeats.receive(beat(1, "boot-2"), now())
    assert not heartbeats.receive(beat(10, "boot-1"), now())
    assert heartbeats.receive(beat(2, "boot-2"), now())


def test_only_the_newest_is_handed_over_and_only_once() -> None:
    heartbeats = Heartbeats()
    for sequence in (1, 2, 3):
        heartbeats.receive(beat(sequence), now())
    heartbeats.receive(beat(1, name="worker2"), now())
    assert [(report.heartbeat.name, report.heartbeat.sequence) for report in heartbeats.take()] == [
        ("worker1", 3),
        ("worker2", 1),
    ]
    assert heartbeats.take() == []


def test_what_is_given_back_does_not_hide_what_is_newer() -> None:
    heartbeats = Heartbeats()
    heartbeats.receive(beat(1), now())
    old = heartbeats.take()
    heartbeats.receive(beat(2), now())
    heartbeats.give_back(old)
    assert [report.heartbeat.sequence for report in heartbeats.take()] == [2]
    heartbeats.give_back(old)
    assert [report.heartbeat.sequence for report in heartbeats.take()] == [1]


def test_only_news_is_urgent() -> None:
    heartbeats = Heartbeats()
    heartbeats.receive(beat(1), now())
    assert heartbeats.news.is_set(), "a node that was not known"
    heartbeats.take()
    heartbeats.receive(beat(2), now())
    assert not heartbeats.news.is_set(), "it lives, that is all"
    heartbeats.receive(beat(3, status=ContainerStatus.RUNNING), now())
    assert heartbeats.news.is_set()
    heartbeats.take()
    heartbeats.receive(beat(4, status=ContainerStatus.EXITED), now())
    assert heartbeats.news.is_set()


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
    assert (await cluster.heartbeat()).json() == {"interval_s": 5.0}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"sequence": 0}, "sequence"),
        ({"port": 70000}, "port"),
        ({"extra": 1}, "extra"),
        ({"inventory": None}, "inventory"),
        ({"containers": [{"id": "x"}]}, "containers[0].session_id"),
    ],
)
async def test_bad_heartbeats(cluster: Cluster, change: dict[str, Any], where: str) -> None:
    response = await _raw(cluster, change)
    assert response.status_code == 422
    assert problems(response)[0]["where"] == where


async def _raw(cluster: Cluster, change: dict[str, Any]) -> Any:
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}) as agent:
        return await agent.post(HEARTBEAT_PATH, json={**beat(1).model_dump(mode="json"), **change})


async def test_a_node_with_more_than_128_gpus_and_slices_is_refused(cluster: Cluster) -> None:
    body = beat(1).model_dump(mode="json")
    body["inventory"]["gpus"] = [{**body["inventory"]["gpus"][0], "index": n, "uuid": f"GPU-{n}"} for n in range(129)]
    response = await _raw(cluster, body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/inventory/gpus"


async def test_one_bad_node_does_not_silence_the_others(cluster: Cluster) -> None:
    """Two GPUs with one identity cannot be written; the other node's heartbeat in the same batch can."""
    body = beat(1, name="broken").model_dump(mode="json")
    body["inventory"]["gpus"] *= 2
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "broken"}) as agent:
        await ok(agent.post(HEARTBEAT_PATH, json=body))
    await cluster.heartbeat("worker1")
    await cluster.settle()
    assert [node["name"] for node in await ok(cluster.admin.get(f"{V1}/nodes"))] == ["worker1"]
