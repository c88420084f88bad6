"""Shares on PostgreSQL: raises, lowered shares and submissions at once never give a GPU away twice; use over time."""

from __future__ import annotations

import asyncio

import pytest

from api.clock import now
from api.control.reconcilers import resizes
from api.control.reconcilers.failures import Failures
from api.resources.nodes import service as nodes
from tests.api.cluster import V1, Cluster, ok

pytestmark = pytest.mark.anyio

PROJECT = {"project": "team-a"}


async def test_a_gpu_is_never_given_away_twice(small: Cluster) -> None:
    for name in "abc":
        await small.submit(name, 200)
    await small.settle()
    for round_, wanted in enumerate((500, 300, 600, 100, 400)):
        await asyncio.gather(
            *(small.admin.patch(f"{V1}/sessions/{n}", params=PROJECT, json={"gpu_milli": wanted}) for n in "abc"),
            small.submit(f"more-{round_}", 150),
            small.settle(),
        )
        await small.settle()
        node = await ok(small.admin.get(f"{V1}/nodes/worker1"))
        held = [gpu.milli for state in small.engine.containers.values() for gpu in state.gpus]
        assert node["used_milli"] == sum(held) <= 1000
        assert (await ok(small.admin.get(f"{V1}/projects/team-a")))["used_milli"] == sum(held)
        assert {(await small.session(name))["resize_milli"] for name in "abc"} == {None}


async def test_heartbeats_and_changes_of_shares_wait_for_each_other_in_no_order(small: Cluster) -> None:
    await small.submit("a", 200)
    await small.settle()
    async with asyncio.timeout(60), small.database.transaction() as db:
        assert await nodes.note_alive(db, {"worker1": now()}) == {"worker1"}
        await ok(small.admin.patch(f"{V1}/sessions/a", params=PROJECT, json={"gpu_milli": 500}))
        await resizes.take_space(small.database, (), Failures())
        assert (await small.session("a"))["gpu_milli"] == 500
