"""Shares on PostgreSQL: raises, lowered shares and submissions at once never give a GPU away twice; use over time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from api.clock import now
from api.control.reconcilers import resizes
from api.resources.nodes import service as nodes
from common.protocol import USE_PATH, GpuUse, UseReport
from tests.api.cluster import V1, Cluster, ok

pytestmark = pytest.mark.anyio

PROJECT = {"project": "team-a"}


async def test_a_gpu_is_never_given_away_twice(cluster: Cluster) -> None:
    for name in "abc":
        await cluster.submit(name, 200)
    await cluster.manager.settle()
    for round_, wanted in enumerate((500, 300, 600, 100, 400)):
        await asyncio.gather(
            *(cluster.admin.patch(f"{V1}/sessions/{n}", params=PROJECT, json={"gpu_milli": wanted}) for n in "abc"),
            cluster.submit(f"more-{round_}", 150),
            cluster.manager.settle(),
        )
        await cluster.manager.settle()
        node = await ok(cluster.admin.get(f"{V1}/nodes/worker1"))
        held = [gpu.milli for state in cluster.engine.containers.values() for gpu in state.gpus]
        assert node["used_milli"] == sum(held) <= 1000
        assert (await ok(cluster.admin.get(f"{V1}/projects/team-a")))["used_milli"] == sum(held)
        assert {(await cluster.session(name))["resize_milli"] for name in "abc"} == {None}


async def test_heartbeats_and_changes_of_shares_wait_for_each_other_in_no_order(cluster: Cluster) -> None:
    await cluster.submit("a", 200)
    await cluster.manager.settle()
    async with asyncio.timeout(20), cluster.database.transaction() as db:
        assert await nodes.note_alive(db, ["worker1"], now()) == {"worker1"}
        await ok(cluster.admin.patch(f"{V1}/sessions/a", params=PROJECT, json={"gpu_milli": 500}))
        await resizes.take_room(cluster.database, {})
        assert (await cluster.session("a"))["gpu_milli"] == 500


async def test_use_is_written_once_and_shown_in_steps(cluster: Cluster) -> None:
    await cluster.submit("a", 500)
    await cluster.manager.settle()
    session = await cluster.session("a")
    moment = now().replace(microsecond=0)
    samples = [
        GpuUse(
            container_id=f"session-{session['id']}-0-0",
            session_id=session["id"],
            uuid="GPU-worker1-0",
            at=moment - timedelta(seconds=15 * number),
            memory_mib=1000 + number,
            busy_permille=500 if number % 2 else None,
            processes=1,
        )
        for number in range(100)
    ]
    body = UseReport(name="worker1", samples=samples).model_dump(mode="json")
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}) as agent:
        for _ in range(2):
            assert (await agent.post(USE_PATH, json=body)).status_code == 204
    query = {**PROJECT, "since": (moment - timedelta(hours=1)).isoformat(), "points": "10"}
    shown = await ok(cluster.admin.get(f"{V1}/sessions/a/use", params=query))
    (series,) = shown["series"]
    assert len(series["points"]) <= 10
    assert max(point["memory_mib"] for point in series["points"]) == 1099
    assert {point["busy_permille"] for point in series["points"]} == {500}
    cluster.manager._rules._tidied = float("-inf")
    await cluster.manager._rules._forget_old(now() + timedelta(days=30))
    assert (await ok(cluster.admin.get(f"{V1}/sessions/a/use", params=query)))["series"] == []
