"""Repairs: what administrators order, the controller takes, and what it tells is what they see."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import update

from api.clock import now
from api.resources import controller_orders
from api.resources.backups import service as backups
from api.resources.backups.schemas import BackupOrderRequest
from api.resources.repairs import service
from api.resources.repairs.schemas import RepairRequest
from api.tables.health import HealthCheck
from api.tables.repairs import RepairRun
from common.backup_protocol import BackupAction
from common.repair_protocol import CONTROLLER, CONTROLLER_PATH
from tests.api.cluster import V1, Cluster, certified, ok, refused, running_cluster

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


ORDERS = {"repair": ("/repairs/5-A/runs", "/repair-runs"), "backup": ("/backup-orders", "/backup-orders")}


async def heard_before(cluster: Cluster, past: timedelta) -> None:
    """Let the controller have been heard of last so long ago."""
    async with cluster.database.transaction() as db:
        await db.execute(update(HealthCheck).values(occurred_at=now() - past))


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


@pytest.mark.parametrize(("said", "told"), [("a\\u0000b", "a\\x00b"), ("a\\udc80b", "a\\udc80b")])
async def test_whatever_a_playbook_printed_gets_through(
    ordering: Cluster, controller: httpx.AsyncClient, said: str, told: str
) -> None:
    step = STEP | {"evidence": "SAID", "tasks": ["SAID"]}
    body = json.dumps({"runs": [run(state="stopped", reason="SAID", steps=[step])]}).replace("SAID", said)
    await ok(controller.post(CONTROLLER_PATH, content=body, headers={"Content-Type": "application/json"}))
    (listed,) = await ok(ordering.admin.get(f"{V1}/repair-runs"))
    shown = await ok(ordering.admin.get(f"{V1}/repair-runs/{listed['id']}"))
    assert (shown["reason"], shown["steps"][0]["evidence"], shown["steps"][0]["tasks"]) == (told, told, [told])


async def test_one_order_waits_at_a_time(ordering: Cluster, controller: httpx.AsyncClient) -> None:
    await ok(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={}))
    told = await refused(ordering.admin.post(f"{V1}/repairs/5-B/runs", json={}), 409)
    assert "waits already" in told["reason"]


@pytest.mark.parametrize("kind", ["repair", "backup"])
async def test_what_waits_is_called_back_once_and_by_name(
    ordering: Cluster, controller: httpx.AsyncClient, kind: str
) -> None:
    orders, listed = ORDERS[kind]
    placed = await ok(ordering.admin.post(f"{V1}{orders}", json={} if kind == "repair" else {"action": "now"}))
    cancel = f"{V1}{listed}/{placed['id']}/cancel"
    done = await ok(ordering.admin.post(cancel))
    assert (done["state"], done["reason"], bool(done["finished_at"])) == ("cancelled", "cancelled by admin", True)
    assert [each["state"] for each in await ok(ordering.admin.get(f"{V1}{listed}"))] == ["cancelled"]
    reply = await ok(controller.post(CONTROLLER_PATH, json={}))
    assert (reply["order"], reply["backup_order"]) == (None, None)
    told = await refused(ordering.admin.post(cancel), 409)
    assert "is cancelled" in told["reason"]
    await refused(ordering.admin.post(f"{V1}{listed}/{uuid4()}/cancel"), 404)
    await ordering.settle()
    lines = await ok(ordering.admin.get(f"{V1}/audit", params={"object": f"{listed[1:]}/{placed['id']}/cancel"}))
    assert sorted((line["user"], line["result"]) for line in lines) == [("admin", "done"), ("admin", "failed")]
    # what has gone makes room for another one
    await ok(ordering.admin.post(f"{V1}{orders}", json={} if kind == "repair" else {"action": "now"}))


async def test_of_orders_at_the_same_moment_one_waits(ordering: Cluster) -> None:
    async with ordering.database.transaction() as db:
        await service.order(db, "5-A", RepairRequest(), "alice", taken=True)
        await backups.order(db, BackupOrderRequest(action=BackupAction.NOW), "alice", taken=True)
        others = [
            asyncio.create_task(refused(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={}), 409)),
            asyncio.create_task(refused(ordering.admin.post(f"{V1}/backup-orders", json={"action": "now"}), 409)),
        ]
        await asyncio.sleep(0.3)
    assert ["waits already" in (await other)["reason"] for other in others] == [True, True]


async def test_an_order_that_was_taken_by_a_clock_that_was_ahead_is_called_back(
    ordering: Cluster, controller: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = await ok(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={}))
    with monkeypatch.context() as patch:
        patch.setattr(controller_orders, "now", lambda: now() + timedelta(days=1))
        assert (await tell(controller))["id"] == ordered["id"]
    called_back = await ok(ordering.admin.post(f"{V1}/repair-runs/{ordered['id']}/cancel"))
    assert called_back["state"] == "cancelled"


@pytest.mark.parametrize("kind", ["repair", "backup"])
async def test_what_the_controller_has_taken_is_not_called_back_unless_it_never_begins(
    ordering: Cluster, controller: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    orders, listed = ORDERS[kind]
    placed = await ok(ordering.admin.post(f"{V1}{orders}", json={} if kind == "repair" else {"action": "now"}))
    reply = await ok(controller.post(CONTROLLER_PATH, json={}))
    order = reply["order"] or reply["backup_order"]
    told = await refused(ordering.admin.post(f"{V1}{listed}/{placed['id']}/cancel"), 409)
    assert "has taken" in told["reason"]
    monkeypatch.setattr(controller_orders, "BEGINS", timedelta())
    await ok(ordering.admin.post(f"{V1}{listed}/{placed['id']}/cancel"))
    # it had begun all the same, and could not say so: what it does counts
    told = {"state": "running", "ordered_at": placed["ordered_at"]}
    report = {"runs": [run(**order | told)]} if kind == "repair" else {"backup_orders": [order | told]}
    await ok(controller.post(CONTROLLER_PATH, json=report))
    shown = await ok(ordering.admin.get(f"{V1}{listed}/{placed['id']}"))
    assert (shown["state"], shown["finished_at"], shown["reason"]) == ("running", None, "")
    assert "is running" in (await refused(ordering.admin.post(f"{V1}{listed}/{placed['id']}/cancel"), 409))["reason"]


async def test_what_the_controller_takes_once_more_is_its_own_again(
    ordering: Cluster, controller: httpx.AsyncClient
) -> None:
    placed = await ok(ordering.admin.post(f"{V1}{ORDERS['repair'][0]}", json={}))
    for _ in range(2):
        assert (await ok(controller.post(CONTROLLER_PATH, json={})))["order"]
        async with ordering.database.transaction() as db:
            row = await db.get(RepairRun, UUID(placed["id"]))
            assert row
            # its answer was lost a minute ago
            early = (now() - timedelta(minutes=1)).isoformat()
            row.record = {name: early if name == "taken_at" else value for name, value in row.record.items()}
    assert (await ok(controller.post(CONTROLLER_PATH, json={})))["order"]
    await refused(ordering.admin.post(f"{V1}/repair-runs/{placed['id']}/cancel"), 409)


@pytest.mark.parametrize(("kind", "state"), [("repair", "interrupted"), ("backup", "failed")])
async def test_what_the_controller_takes_again_and_again_and_never_begins_ends_and_the_next_one_runs(
    ordering: Cluster, controller: httpx.AsyncClient, kind: str, state: str
) -> None:
    orders, listed = ORDERS[kind]
    body, name = ({}, "order") if kind == "repair" else ({"action": "now"}, "backup_order")
    placed = await ok(ordering.admin.post(f"{V1}{orders}", json=body))
    for _ in range(controller_orders.MOST_TAKEN):
        assert (await ok(controller.post(CONTROLLER_PATH, json={})))[name]["id"] == placed["id"]
    assert (await ok(controller.post(CONTROLLER_PATH, json={})))[name] is None
    shown = await ok(ordering.admin.get(f"{V1}{listed}/{placed['id']}"))
    assert (shown["state"], bool(shown["finished_at"])) == (state, True)
    assert "the controller has taken it 10 times and not begun it" in shown["reason"]
    assert "penstock-controller" in shown["reason"]
    after = await ok(ordering.admin.post(f"{V1}{orders}", json=body))
    order = (await ok(controller.post(CONTROLLER_PATH, json={})))[name]
    assert order["id"] == after["id"]
    # the first one had begun all the same, and could not say so: what it does counts, and how it ended stays
    first = {"id": placed["id"], "by": "admin", "ordered_at": placed["ordered_at"]}
    first |= {"repair": "5-A"} if kind == "repair" else {"action": "now"}
    for told in ("running", "healthy" if kind == "repair" else "done", "running"):
        one = run(**first | {"state": told}) if kind == "repair" else first | {"state": told}
        await ok(controller.post(CONTROLLER_PATH, json={"runs" if kind == "repair" else "backup_orders": [one]}))
    shown = await ok(ordering.admin.get(f"{V1}{listed}/{placed['id']}"))
    assert shown["state"] == ("healthy" if kind == "repair" else "done")


async def test_who_orders_is_told_when_the_controller_was_last_heard_of(
    ordering: Cluster, controller: httpx.AsyncClient
) -> None:
    unheard = {"takes_orders": True, "heard_at": None, "away": True}
    assert await ok(ordering.admin.get(f"{V1}/controller")) == unheard
    await ok(controller.post(CONTROLLER_PATH, json={"nodes": []}))
    first = await ok(ordering.admin.get(f"{V1}/controller"))
    assert (bool(first["heard_at"]), first["away"]) == (True, False)
    # of reports without a look few are written down
    await ok(controller.post(CONTROLLER_PATH, json={}))
    assert await ok(ordering.admin.get(f"{V1}/controller")) == first
    await heard_before(ordering, timedelta(minutes=1))
    await ok(controller.post(CONTROLLER_PATH, json={}))
    later = await ok(ordering.admin.get(f"{V1}/controller"))
    assert later["heard_at"] >= first["heard_at"]
    await heard_before(ordering, timedelta(minutes=3))
    assert (await ok(ordering.admin.get(f"{V1}/controller")))["away"]


async def test_a_repair_of_a_node_that_nobody_knows_is_refused(
    ordering: Cluster, controller: httpx.AsyncClient
) -> None:
    await ordering.add_node("w1")
    # before the controller has told of its nodes it is the one to judge
    waiting = await ok(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={"limit": "m1"}))
    await ok(ordering.admin.post(f"{V1}/repair-runs/{waiting['id']}/cancel"))
    check = {"id": "answers", "name": "node answers", "state": "ok"}
    nodes = [{"node": "m1", "checks": [check]}, {"node": "", "checks": []}]
    await ok(controller.post(CONTROLLER_PATH, json={"nodes": nodes}))
    told = await refused(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={"limit": "m2"}), 404)
    assert (told["where"], told["reason"], told["hint"]) == ("limit", "the site has no node m2", "choose of m1, w1")
    for known in ("m1", "w1"):
        placed = await ok(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={"limit": known}))
        await ok(ordering.admin.post(f"{V1}/repair-runs/{placed['id']}/cancel"))


async def test_a_worker_that_has_never_reported_is_repaired(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agents").write_text("w1\nw2\n")
    async with running_cluster(database_url, controller=True, agents_file=tmp_path / "agents") as site:
        async with site.client(**certified(CONTROLLER)) as controller:
            await ok(controller.post(CONTROLLER_PATH, json={"nodes": []}))
        told = await refused(site.admin.post(f"{V1}/repairs/5-G/runs", json={"limit": "w3"}), 404)
        assert told["hint"] == "choose of w1, w2"
        await ok(site.admin.post(f"{V1}/repairs/5-G/runs", json={"limit": "w2"}))


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


async def test_what_root_did_on_the_controller_is_in_the_audit_log(
    ordering: Cluster, controller: httpx.AsyncClient
) -> None:
    done = {
        "id": str(uuid4()),
        "command": "backup restore",
        "object": "backups/penstock-20261123-020000",
        "by": "ann",
        "began_at": "2026-11-23T12:00:00.5Z",
        "ended_at": "2026-11-23T12:01:00Z",
        "ok": True,
    }
    failed = done | {"id": str(uuid4()), "command": "site deploy", "object": "nodes", "ok": False, "reason": "no\0room"}
    await ok(controller.post(CONTROLLER_PATH, json={"commands": [done, failed]}))
    await ordering.settle()
    told = await ok(ordering.admin.get(f"{V1}/audit", params={"user": "command:ann"}))
    shown = {
        line["action"]: (line["object"], line["result"], line["reason"], line["request"], line["time"]) for line in told
    }
    assert shown == {
        "backup_restore": (done["object"], "done", "", done["id"], "2026-11-23T12:00:00.500000Z"),
        "site_deploy": ("nodes", "failed", "no\\x00room", failed["id"], "2026-11-23T12:00:00.500000Z"),
    }
