"""Heartbeats in batches: what is no news costs one statement, and nothing is missed by that."""

from __future__ import annotations

from datetime import datetime

import pytest
from sqlalchemy import event

from api.database import now
from api.nodes.heartbeats import Heartbeats
from appliance.agent.protocol import ContainerStatus
from tests.unit.api.conftest import V1, Cluster, ok
from tests.unit.api.test_nodes import beat

pytestmark = pytest.mark.anyio


def test_news_that_was_overtaken_is_still_news() -> None:
    heartbeats = Heartbeats()
    heartbeats.receive(beat(1), now())
    heartbeats.take()
    heartbeats.receive(beat(2, status=ContainerStatus.RUNNING), now())
    heartbeats.receive(beat(3, status=ContainerStatus.RUNNING), now())
    (report,) = heartbeats.take()
    assert (report.heartbeat.sequence, report.news) == (3, True)


def test_news_that_could_not_be_written_is_still_news() -> None:
    heartbeats = Heartbeats()
    heartbeats.receive(beat(1), now())
    lost = heartbeats.take()
    heartbeats.receive(beat(2), now())
    heartbeats.give_back(lost)
    (report,) = heartbeats.take()
    assert (report.heartbeat.sequence, report.news) == (2, True)


async def seen(cluster: Cluster, name: str) -> datetime:
    return datetime.fromisoformat((await ok(cluster.admin.get(f"{V1}/nodes/{name}")))["last_seen"])


async def test_a_node_that_only_lives_costs_one_statement_for_all(cluster: Cluster) -> None:
    names = [f"worker{number}" for number in range(20)]
    for name in names:
        await cluster.heartbeat(name, 1)
    await cluster.manager.settle()
    before = await seen(cluster, "worker7")
    for name in names:
        await cluster.heartbeat(name, 1)
    statements: list[str] = []
    engine = cluster.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", lambda _c, _u, statement, *_: statements.append(statement))
    await cluster.manager._observer.apply()
    assert len([text for text in statements if not text.startswith("BEGIN")]) == 1
    assert await seen(cluster, "worker7") > before


async def test_a_deleted_node_comes_back_though_its_agent_says_nothing_new(cluster: Cluster) -> None:
    await cluster.add_node()
    await ok(cluster.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}))
    await ok(cluster.admin.delete(f"{V1}/nodes/worker1"))
    await cluster.heartbeat()
    await cluster.manager.settle()
    (node,) = await ok(cluster.admin.get(f"{V1}/nodes"))
    assert (node["name"], node["mode"]) == ("worker1", "active")


async def test_a_node_may_report_a_hundred_containers_of_sixteen_gpus(cluster: Cluster) -> None:
    await cluster.add_node("worker1", 16)
    await cluster.add_image()
    await cluster.add_project("team-a", 16_000)
    for name, count in (("a", 50), ("b", 51)):
        body = {"name": name, "project": "team-a", "image": "python", "gpu_milli": 100, "count": count}
        await ok(cluster.admin.post(f"{V1}/sessions/batch", json=body))
    await cluster.manager.settle()
    states = list((await cluster.states()).values())
    assert (states.count("RUNNING"), states.count("PENDING")) == (100, 1), "the 101st waits"
    await cluster.heartbeat("worker1", 16)
    await cluster.manager.settle()
    assert (await ok(cluster.admin.get(f"{V1}/nodes/worker1")))["sessions"] == 100
