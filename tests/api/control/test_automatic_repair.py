"""Automatic repairs: a check that fails orders its repair, the controller takes it, and the audit log has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from api.clock import now
from api.tables.health import HealthChange, HealthCheck
from api.tables.repairs import RepairRun
from common.check_protocol import CheckReport
from common.checks import CheckState
from common.repair_protocol import CONTROLLER, CONTROLLER_PATH
from tests.api.cluster import V1, Cluster, certified, ok, running_cluster
from tests.api.resources.repairs.test_repairs import run

pytestmark = pytest.mark.anyio


@pytest.fixture
async def repairing(database_url: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A site that repairs container engines by itself, with two nodes."""
    (tmp_path / "log").mkdir()
    (tmp_path / "key").write_text("a key of these tests")
    settings = {"audit_folder": tmp_path / "log", "audit_key": tmp_path / "key", "repair_automatic": ["engine"]}
    async with running_cluster(database_url, controller=True, **settings) as running:
        for name in ("worker1", "worker2"):
            await running.add_node(name)
        yield running


async def says(cluster: Cluster, state: str, check: str = "engine", node: str = "worker1", repair: str = "5-D") -> None:
    """Let an agent report a check, and what is due be done."""
    told = {"id": check, "name": check, "thing": "", "evidence": "no answer", "hint": "look", "repair": repair}
    report = CheckReport.model_validate({**told, "state": CheckState(state)})
    assert (await cluster.heartbeat(node, checks=[report])).is_success
    await passes(cluster)


async def passes(cluster: Cluster, **time: float) -> None:
    step = timedelta(**time) if time else timedelta(seconds=7)
    cluster.clock.passed += step.total_seconds()
    cluster.clock.ahead += step
    await cluster.settle()


async def runs(cluster: Cluster) -> list[dict[str, Any]]:
    return list(await ok(cluster.admin.get(f"{V1}/repair-runs")))


async def ends(cluster: Cluster, state: str = "stopped") -> str:
    """Let the controller take what was ordered and say how it ended; returns its id."""
    async with cluster.client(**certified(CONTROLLER)) as controller:
        order = (await ok(controller.post(CONTROLLER_PATH, json={})))["order"]
        finished = cluster.clock.now().isoformat()
        end = run(id=order["id"], repair=order["repair"], state=state, tried=[order["limit"]], finished_at=finished)
        await ok(controller.post(CONTROLLER_PATH, json={"runs": [end]}))
    return str(order["id"])


@pytest.mark.parametrize("repair", ["", "5-Z"])
async def test_a_check_for_which_no_repair_helps_orders_none(repairing: Cluster, repair: str) -> None:
    """As a service that runs and hangs now and then; or one that only a later release can mend."""
    await says(repairing, "fail", repair=repair)
    assert await runs(repairing) == []


@pytest.mark.parametrize(
    ("check", "repair"), [("engine", "5-G"), ("engine", "5-I"), ("agent", "5-H2"), ("registry", "5-I")]
)
async def test_an_agent_chooses_no_repair(repairing: Cluster, check: str, repair: str) -> None:
    """Its certificate may be in the wrong hands."""
    repairing.manager._settings.repair_automatic.append(check)
    await says(repairing, "fail", check=check, repair=repair)
    await passes(repairing, minutes=2)
    assert await runs(repairing) == []


async def test_nodes_without_an_agent_count_among_all(repairing: Cluster) -> None:
    """Two of ten may be unhealthy: of two workers and eight others."""
    check = {"id": "disk", "name": "disk", "thing": "", "evidence": "full", "hint": "look"}
    told = [{"node": f"storage{n}", "checks": [{**check, "state": "ok" if n else "fail"}]} for n in range(8)]
    async with repairing.client(**certified(CONTROLLER)) as controller:
        await ok(controller.post(CONTROLLER_PATH, json={"wants": False, "nodes": told}))
    await says(repairing, "fail")
    assert len(await runs(repairing)) == 1


async def test_a_check_that_fails_orders_its_repair_for_its_node(repairing: Cluster) -> None:
    await says(repairing, "fail")
    (ordered,) = await runs(repairing)
    told = {name: ordered[name] for name in ("repair", "limit", "by", "state", "dry_run", "agreed")}
    assert told == {
        "repair": "5-D",
        "limit": "worker1",
        "by": "check:engine",
        "state": "ordered",
        "dry_run": False,
        "agreed": False,
    }
    await ends(repairing, "repaired")
    await says(repairing, "ok")
    assert len(await runs(repairing)) == 1


async def test_an_agent_does_not_say_that_a_repair_helps(repairing: Cluster) -> None:
    """Its certificate may be in the wrong hands, and each time it said so three more would be tried."""
    told = {"id": "repair", "name": "repair", "thing": "engine", "state": CheckState.FAIL}
    await repairing.heartbeat(checks=[CheckReport.model_validate(told)])
    await passes(repairing)
    assert await alarm(repairing) is None


async def test_it_is_in_the_audit_log(repairing: Cluster) -> None:
    await says(repairing, "fail")
    await repairing.settle()
    (line,) = await ok(repairing.admin.get(f"{V1}/audit", params={"action": "repair_run"}))
    assert (line["user"], line["object"], line["result"]) == ("check:engine", "repairs/5-D/runs", "done")
    assert line["reason"].startswith("engine fails since 20")
    assert line["changes"][0]["after"]["node"] == "worker1"


async def fails_on(cluster: Cluster, minutes: int = 12) -> list[str]:
    """Let a check fail for long whose repair never helps; returns how its new runs ended."""
    before = len(await runs(cluster))
    for _ in range(minutes // 2):
        await says(cluster, "fail")
        if any(each["state"] == "ordered" for each in await runs(cluster)):
            await ends(cluster)
        await passes(cluster, seconds=114)
    return [each["state"] for each in await runs(cluster)][: len(await runs(cluster)) - before]


async def alarm(cluster: Cluster) -> dict[str, Any] | None:
    """Return what is said of repairs that do not help."""
    found = await ok(cluster.admin.get(f"{V1}/health/checks", params={"node": "worker1"}))
    return next((each for each in found if each["check"] == "repair"), None)


async def check_path(cluster: Cluster, check: str = "engine") -> str:
    found = await ok(cluster.admin.get(f"{V1}/health/checks", params={"node": "worker1"}))
    return next(f"{V1}/health/checks/{each['id']}" for each in found if each["check"] == check)


async def test_one_that_does_not_help_is_tried_three_times_and_never_again(repairing: Cluster) -> None:
    assert await fails_on(repairing) == ["stopped"] * 3
    assert await fails_on(repairing, 24) == []
    said = await alarm(repairing)
    assert said
    assert (said["state"], said["thing"], said["node"]) == ("fail", "engine", "worker1")
    assert "5-D was ordered 3 times" in said["evidence"]
    assert "penstock health clear engine --node worker1" in said["hint"]


async def test_one_that_gave_up_is_tried_again_when_its_check_was_well(repairing: Cluster) -> None:
    await fails_on(repairing)
    await says(repairing, "unknown")
    assert await fails_on(repairing) == [], "not to be seen is not to be well"
    await says(repairing, "ok")
    assert await alarm(repairing) is None
    assert await fails_on(repairing) == ["stopped"] * 3


@pytest.mark.parametrize("check", ["engine", "repair"])
async def test_one_that_gave_up_is_tried_again_when_somebody_clears_it(repairing: Cluster, check: str) -> None:
    """The check that fails, or the one that tells of its repair."""
    await fails_on(repairing)
    await ok(repairing.admin.post(f"{await check_path(repairing, check)}/clear"))
    await passes(repairing)
    assert await alarm(repairing) is None
    if check == "engine":
        await says(repairing, "ok")
    await fails_on(repairing)
    assert len(await runs(repairing)) == 6
    assert await alarm(repairing)


async def test_one_that_gave_up_is_tried_again_when_nobody_looks_after_it_any_more(repairing: Cluster) -> None:
    await fails_on(repairing)
    path = f"{await check_path(repairing)}/acknowledgement"
    until = repairing.clock.now() + timedelta(hours=1)
    await ok(repairing.admin.put(path, json={"until": until.isoformat()}))
    assert await fails_on(repairing) == []
    assert await alarm(repairing) is None
    await ok(repairing.admin.delete(path))
    assert await fails_on(repairing) == ["stopped"] * 3


async def test_one_that_helped_has_time_to_show(repairing: Cluster) -> None:
    """A check is well only after some looks."""
    await says(repairing, "fail")
    await ends(repairing, "repaired")
    await passes(repairing, seconds=38)
    assert len(await runs(repairing)) == 1
    await passes(repairing, seconds=114)
    assert len(await runs(repairing)) == 2


@pytest.mark.parametrize("is_well_between", [True, False])
async def test_a_clock_that_was_put_back_neither_lets_one_be_tried_for_ever_nor_never(
    repairing: Cluster, *, is_well_between: bool
) -> None:
    await says(repairing, "fail")
    await says(repairing, "ok")
    await fails_on(repairing, 4)
    if is_well_between:
        await says(repairing, "ok")
    async with repairing.database.transaction() as db:
        for kind, column in ((HealthChange, "at"), (HealthCheck, "since"), (RepairRun, "created_at")):
            moment = getattr(kind, column)
            await db.execute(update(kind).values({column: moment + timedelta(days=365)}))
        await db.execute(update(RepairRun).values(finished_at=RepairRun.finished_at + timedelta(days=365)))
    # what is known is of a year from now
    assert await fails_on(repairing, 24) == ["stopped"] * 3
    assert await alarm(repairing)


async def test_no_alarm_stays_where_nothing_is_repaired_any_more(repairing: Cluster) -> None:
    await fails_on(repairing)
    repairing.settings.repair_automatic.clear()
    await passes(repairing)
    assert await alarm(repairing) is None


async def test_one_runs_at_a_time(repairing: Cluster) -> None:
    await says(repairing, "fail")
    await passes(repairing)
    await says(repairing, "fail")
    assert len(await runs(repairing)) == 1


async def test_nothing_is_ordered_while_too_many_nodes_are_unhealthy(repairing: Cluster) -> None:
    await says(repairing, "fail", "disk", "worker2")
    await says(repairing, "fail")
    assert await runs(repairing) == []


async def test_a_check_that_the_site_does_not_name_orders_nothing(repairing: Cluster) -> None:
    await says(repairing, "fail", "disk")
    assert await runs(repairing) == []


async def test_what_somebody_looks_after_is_left_to_them(repairing: Cluster) -> None:
    await ok(repairing.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}))
    await says(repairing, "fail")
    (check,) = await ok(repairing.admin.get(f"{V1}/health/checks", params={"node": "worker1", "state": "fail"}))
    until = (now() + timedelta(hours=1)).isoformat()
    await ok(repairing.admin.put(f"{V1}/health/checks/{check['id']}/acknowledgement", json={"until": until}))
    await ok(repairing.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": "active"}))
    await passes(repairing)
    assert await runs(repairing) == []


async def test_without_being_asked_for_nothing_is_ordered(cluster: Cluster) -> None:
    await cluster.add_node()
    await says(cluster, "fail")
    assert await runs(cluster) == []
