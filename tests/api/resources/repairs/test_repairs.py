"""Repairs: what administrators order, the controller takes, and what it tells is what they see."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from common.repair_protocol import CONTROLLER_PATH
from tests.api.cluster import V1, Cluster, certified, ok, refused

pytestmark = pytest.mark.anyio

STEP = {
    "node": "m1",
    "at": "2026-11-23T12:00:01Z",
    "rung": "start_edge",
    "ok": True,
    "evidence": "all is well",
    "seconds": 1.5,
    "tasks": ["Start the edge: changed"],
}


async def tell(controller: httpx.AsyncClient, *runs: dict[str, Any], wants: bool = True) -> Any:
    answer = await ok(controller.post(CONTROLLER_PATH, json={"runs": list(runs), "wants": wants}))
    return answer["order"]


def run(**told: Any) -> dict[str, Any]:
    plain = {
        "id": str(uuid4()),
        "repair": "5-A",
        "by": "root",
        "state": "running",
        "ordered_at": "2026-11-23T12:00:00Z",
    }
    return plain | told


async def test_what_is_ordered_is_taken_done_and_told(ordering: Cluster, controller: httpx.AsyncClient) -> None:
    assert await tell(controller) is None
    ordered = await ok(ordering.admin.post(f"{V1}/repairs/5-a/runs", json={"limit": "m1", "dry_run": True}))
    assert (ordered["repair"], ordered["state"], ordered["by"], ordered["steps"]) == ("5-A", "ordered", "admin", [])
    order = await tell(controller)
    assert order == {name: ordered[name] for name in ("id", "repair", "by", "limit", "dry_run", "agreed", "ordered_at")}

    assert await tell(controller, run(id=order["id"], state="running", steps=[STEP]), wants=False) is None
    shown = await ok(ordering.admin.get(f"{V1}/repair-runs/{order['id']}"))
    assert (shown["state"], shown["steps"], shown["by"]) == ("running", [STEP], "admin")

    end = run(id=order["id"], state="rehearsed", steps=[STEP], sick=["m1"], finished_at="2026-11-23T12:00:09Z")
    assert await tell(controller, end) is None
    (listed,) = await ok(ordering.admin.get(f"{V1}/repair-runs"))
    assert (listed["state"], listed["tried"], listed["sick"]) == ("rehearsed", [], ["m1"])
    assert "steps" not in listed


async def test_nothing_is_handed_out_while_something_runs(ordering: Cluster, controller: httpx.AsyncClient) -> None:
    await ok(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={}))
    assert await tell(controller, wants=False) is None
    assert await tell(controller) is not None


async def test_runs_of_the_command_line_are_told_afterwards(ordering: Cluster, controller: httpx.AsyncClient) -> None:
    local = run(repair="5-C", state="stopped", reason="it is still there", tried=["m1"])
    await tell(controller, local)
    await tell(controller, local | {"state": "running"})
    (listed,) = await ok(ordering.admin.get(f"{V1}/repair-runs"))
    assert (listed["by"], listed["state"], listed["reason"]) == ("root", "stopped", "it is still there")


async def test_one_order_waits_at_a_time(ordering: Cluster, controller: httpx.AsyncClient) -> None:
    await ok(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={}))
    told = await refused(ordering.admin.post(f"{V1}/repairs/5-B/runs", json={}), 409)
    assert "waits already" in told["reason"]


async def test_a_repair_that_there_is_not_is_refused(ordering: Cluster, controller: httpx.AsyncClient) -> None:
    told = await refused(ordering.admin.post(f"{V1}/repairs/5-Z/runs", json={}), 404)
    assert "no repair 5-Z" in told["reason"]


async def test_without_a_controller_nothing_is_ordered(cluster: Cluster) -> None:
    told = await refused(cluster.admin.post(f"{V1}/repairs/5-A/runs", json={}), 409)
    assert "takes no orders" in told["reason"]


@pytest.mark.parametrize("name", ["worker1", ""])
async def test_nobody_else_takes_orders(cluster: Cluster, name: str) -> None:
    async with cluster.client(**certified(name)) as client:
        told = await refused(client.post(CONTROLLER_PATH, json={}), 401)
    assert "for the controller" in told["reason"]


async def test_the_repairs_are_listed_with_their_words(cluster: Cluster) -> None:
    listed = {each["id"]: each for each in await ok(cluster.admin.get(f"{V1}/repairs"))}
    assert listed["5-H2"]["symptoms"] == ["[Error : NodeStatusUnknown]"]
    assert [rung["rung"] for rung in listed["5-C"]["rungs"]] == ["start_master", "restart_api"]


async def test_an_order_is_in_the_audit_log(ordering: Cluster) -> None:
    await ok(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={"agreed": True}))
    await ordering.settle()
    entries = await ok(ordering.admin.get(f"{V1}/audit", params={"action": "repair_run"}))
    (line,) = entries
    assert (line["user"], line["result"], line["changes"][0]["after"]["agreed"]) == ("admin", "done", True)
