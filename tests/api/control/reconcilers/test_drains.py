"""Nodes in maintenance, and nodes that are drained."""

from __future__ import annotations

from typing import Any

import pytest

from api.control import administration
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import pass_time, run

pytestmark = pytest.mark.anyio


async def set_mode(cluster: Cluster, mode: str, **more: Any) -> dict[str, Any]:
    answer = dict(await ok(cluster.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": mode, **more})))
    await cluster.settle()
    return answer


async def test_in_maintenance_nothing_new_comes_and_what_runs_stays(ready: Cluster) -> None:
    await run(ready)
    assert (await set_mode(ready, "maintenance"))["mode"] == "maintenance"
    await ready.submit("next")
    await ready.settle()
    assert await ready.states() == {"demo": "RUNNING", "next": "PENDING"}
    reason = "no node is ready, worker1 is in maintenance; ask the administrator when nodes come back"
    assert (await ready.session("next"))["reason"] == reason
    await set_mode(ready, "active")
    assert await ready.states() == {"demo": "RUNNING", "next": "RUNNING"}


async def test_a_drain_moves_trainings_and_warns_people(ready: Cluster) -> None:
    await ready.add_node("worker2")
    await set_mode(ready, "active")
    await run(ready, "work", gpu_milli=4000)
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 8000}))
    node = (await ready.session("work"))["node"]
    other = {"worker1": "worker2", "worker2": "worker1"}[node]
    await run(ready, "talk", gpu_milli=500, interactive=True)
    assert (await ready.session("talk"))["node"] == other
    for name in (node, other):
        await ok(ready.admin.patch(f"{V1}/nodes/{name}/mode", json={"mode": "draining", "drain_timeout_s": 600}))
    await ready.settle()
    assert await ready.states() == {"work": "PENDING", "talk": "RUNNING"}
    assert (await ready.session("talk"))["reason"].startswith(f"{other} is drained and ends it at ")
    modes = {row["name"]: row["mode"] for row in await ok(ready.admin.get(f"{V1}/nodes"))}
    assert modes == {node: "maintenance", other: "draining"}, "an empty node is done"

    pass_time(ready, 601)
    await ready.settle()
    await ready.settle()
    session = await ready.session("talk")
    assert (session["state"], session["reason"]) == ("TERMINATED", f"{other} was drained")
    assert (await ok(ready.admin.get(f"{V1}/nodes/{other}")))["mode"] == "maintenance"
    assert ready.engine.containers == {}


async def test_a_drain_that_is_called_off(ready: Cluster) -> None:
    await run(ready, interactive=True)
    await set_mode(ready, "draining")
    assert (await ready.session("demo"))["reason"]
    await set_mode(ready, "active")
    assert (await ready.session("demo"))["reason"] == ""
    pass_time(ready, 3600)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_an_empty_node_in_maintenance_can_be_deleted(ready: Cluster) -> None:
    await run(ready)
    await refused(ready.admin.delete(f"{V1}/nodes/worker1"), 409)
    await set_mode(ready, "draining")
    await ok(ready.admin.delete(f"{V1}/nodes/worker1"))
    assert await ok(ready.admin.get(f"{V1}/nodes")) == []


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"mode": "broken"}, "mode"),
        ({}, "mode"),
        ({"mode": "draining", "drain_timeout_s": -1}, "drain_timeout_s"),
        ({"mode": "draining", "drain_timeout_s": 10**12}, "drain_timeout_s"),
        ({"mode": "active", "more": 1}, "more"),
    ],
)
async def test_bad_modes(ready: Cluster, body: dict[str, Any], where: str) -> None:
    assert (await refused(ready.admin.patch(f"{V1}/nodes/worker1/mode", json=body), 422))["where"] == where


async def test_only_administrators_change_nodes(ready: Cluster) -> None:
    async with await ready.user("alice") as alice:
        await refused(alice.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}), 403)
        await refused(alice.delete(f"{V1}/nodes/worker1"), 403)
        await refused(alice.delete(f"{V1}/nodes/worker1/unknown-containers"), 403)
        assert len(await ok(alice.get(f"{V1}/nodes"))) == 1
    await refused(ready.admin.patch(f"{V1}/nodes/worker9/mode", json={"mode": "active"}), 404)


async def test_a_node_that_leaves_the_site_is_closed_and_what_runs_on_it_is_named(ready: Cluster) -> None:
    await run(ready)
    async with ready.database.transaction() as db:
        left = await administration.close_others(db, ["worker2"], check=False)
    [session] = left[0].pop("sessions")
    assert left == [{"name": "worker1", "closed": True}]
    assert (session["name"], session["project"]) == ("demo", "team-a")
    await ready.submit("next")
    await ready.settle()
    assert await ready.states() == {"demo": "RUNNING", "next": "PENDING"}, "nothing new comes, and what runs stays"
