"""Backups: what the controller tells is what administrators see, and it does what they order."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from common.repair_protocol import CONTROLLER_PATH
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.resources.repairs.test_repairs import run

pytestmark = pytest.mark.anyio

ONE, TWO = "penstock-20261122-020000", "penstock-20261123-020000"


def backup(name: str, **told: Any) -> dict[str, Any]:
    return {"name": name, "time": "2026-11-23T02:00:00Z", "good": True, "rows": 7, "size": 5} | told


async def tell(controller: httpx.AsyncClient, **report: Any) -> Any:
    return await ok(controller.post(CONTROLLER_PATH, json=report))


async def test_what_the_controller_has_is_listed(ordering: Cluster, controller: httpx.AsyncClient) -> None:
    await tell(controller, backups=[backup(TWO, ahead=True), backup(ONE, good=False, problem="the disk is full")])
    await tell(controller)
    listed = await ok(ordering.admin.get(f"{V1}/backups"))
    assert [(each["name"], each["good"], each["ahead"]) for each in listed] == [(TWO, True, True), (ONE, False, False)]
    assert listed[1]["problem"] == "the disk is full"
    await tell(controller, backups=[backup(ONE)])
    assert [each["name"] for each in await ok(ordering.admin.get(f"{V1}/backups"))] == [ONE]
    await tell(controller, backups=[])
    assert await ok(ordering.admin.get(f"{V1}/backups")) == []


async def test_what_is_ordered_is_taken_once_and_told(ordering: Cluster, controller: httpx.AsyncClient) -> None:
    placed = await ok(ordering.admin.post(f"{V1}/backup-orders", json={"action": "now"}))
    assert (placed["action"], placed["state"], placed["by"]) == ("now", "ordered", "admin")
    assert (await tell(controller, wants=False))["backup_order"] is None
    order = (await tell(controller))["backup_order"]
    assert order == {name: placed[name] for name in ("id", "action", "backup", "by", "ordered_at")}
    await tell(controller, backup_orders=[order | {"state": "running"}])
    assert (await tell(controller))["backup_order"] is None
    end = {"state": "done", "finished_at": "2026-11-23T12:00:09Z", "backup": TWO, "seconds": 1.5}
    await tell(controller, backup_orders=[order | end])
    await tell(controller, backup_orders=[order | {"state": "running"}])
    shown = await ok(ordering.admin.get(f"{V1}/backup-orders/{order['id']}"))
    assert (shown["state"], shown["backup"], shown["seconds"]) == ("done", TWO, 1.5)
    assert [each["id"] for each in await ok(ordering.admin.get(f"{V1}/backup-orders"))] == [order["id"]]


async def test_a_repair_comes_before_a_backup(ordering: Cluster, controller: httpx.AsyncClient) -> None:
    await ok(ordering.admin.post(f"{V1}/backup-orders", json={"action": "now"}))
    await ok(ordering.admin.post(f"{V1}/repairs/5-A/runs", json={}))
    reply = await tell(controller)
    assert (reply["order"]["repair"], reply["backup_order"]) == ("5-A", None)
    done = run(id=reply["order"]["id"], state="healthy")
    assert (await tell(controller, runs=[done]))["backup_order"]["action"] == "now"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"action": "verify", "backup": ONE}, 404, f"there is no backup {ONE}"),
        ({"action": "verify", "backup": "../etc"}, 422, "is no name of a backup"),
        ({"action": "restore"}, 422, "now"),
        ({"action": "now", "backup": ONE}, 422, "has no name yet"),
    ],
)
async def test_what_cannot_be_done_is_refused(ordering: Cluster, body: Any, status: int, reason: str) -> None:
    told = await refused(ordering.admin.post(f"{V1}/backup-orders", json=body), status)
    assert reason in told["reason"]


async def test_one_order_waits_at_a_time_and_is_in_the_audit_log(ordering: Cluster) -> None:
    await ok(ordering.admin.post(f"{V1}/backup-orders", json={"action": "drill"}))
    told = await refused(ordering.admin.post(f"{V1}/backup-orders", json={"action": "now"}), 409)
    assert "waits already" in told["reason"]
    await ordering.settle()
    done, failed = sorted(
        await ok(ordering.admin.get(f"{V1}/audit", params={"action": "backup_order"})), key=lambda line: line["result"]
    )
    assert (done["user"], done["changes"][0]["after"]["action"]) == ("admin", "drill")
    assert failed["result"] == "failed"


async def test_without_a_controller_nothing_is_ordered(cluster: Cluster) -> None:
    told = await refused(cluster.admin.post(f"{V1}/backup-orders", json={"action": "now"}), 409)
    assert "takes no orders" in told["reason"]
