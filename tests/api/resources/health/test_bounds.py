"""Bounds of checks: what one node says fills neither the database nor the place of what others say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import func, select

from api.control.health_check import AGENTS_S
from api.resources.health.bounds import MAX_CHANGES, MAX_KEPT, MAX_TOLD
from api.resources.health.writer import MAX_WAITING
from api.tables.health import HealthAlert
from common.check_protocol import MAX_CHECKS, CheckReport
from common.checks import CheckState
from tests.api.cluster import V1, Cluster, ok, running_cluster

pytestmark = pytest.mark.anyio


def failing(beat: int, number: int) -> Iterator[CheckReport]:
    """Checks of things that nobody named before."""
    for index in range(number):
        thing = f"{beat}-{index}"
        yield CheckReport(id="made.up", name="it is so", state=CheckState.FAIL, thing=thing, evidence="e" * 1000)


async def flood(cluster: Cluster, beats: int, number: int = MAX_CHECKS) -> None:
    for beat in range(beats):
        assert (await cluster.heartbeat(checks=list(failing(beat, number)))).is_success
        await cluster.settle()


async def test_so_many_checks_of_a_node_are_kept_and_the_others_counted(ready: Cluster) -> None:
    await flood(ready, 1)
    checks = await ok(ready.admin.get(f"{V1}/health/checks?node=worker1"))
    assert sum(each["check"] == "made.up" for each in checks) == MAX_KEPT
    [told] = [each for each in checks if each["check"] == "checks"]
    assert (told["state"], told["evidence"]) == ("warn", f"{MAX_CHECKS - MAX_KEPT} more were reported and not kept")
    await flood(ready, 1, MAX_KEPT)
    checks = await ok(ready.admin.get(f"{V1}/health/checks?node=worker1"))
    assert [each for each in checks if each["check"] == "checks"] == []


async def test_so_many_changes_of_a_node_are_noted_in_an_hour(ready: Cluster) -> None:
    await flood(ready, 2, MAX_KEPT)
    noted = await ok(ready.admin.get(f"{V1}/health/changes?node=worker1&limit=1000"))
    assert sum(each["check"] != "agent" for each in noted) == MAX_CHANGES
    [last] = [each for each in noted if each["check"] == "checks" and each["thing"] == "history"]
    assert last["evidence"].startswith(f"{MAX_CHANGES} changes within this hour: others are not noted until ")


async def test_a_flood_of_one_node_silences_no_other(database_url: str) -> None:
    nobody_answers: dict[str, Any] = {"alerts_mail_server": "127.0.0.1:1", "alerts_mail_to": ["ops@example.org"]}
    async with running_cluster(database_url, **nobody_answers) as cluster:
        await cluster.add_node()
        await cluster.add_node("worker2")
        await flood(cluster, 1)
        async with cluster.database.reading() as db:
            waiting = await db.scalar(select(func.count()).select_from(HealthAlert))
        assert waiting == MAX_TOLD < MAX_WAITING
        assert (await cluster.heartbeat("worker2", checks=list(failing(0, 1)))).is_success
        await cluster.settle()
        async with cluster.database.reading() as db:
            told = (await db.scalars(select(HealthAlert.told))).all()
        assert [each["thing"] for each in told if each["node"] == "worker2"] == ["0-0"]


async def test_an_agent_takes_no_check_of_others_and_says_each_once(ready: Cluster) -> None:
    false = [CheckReport(id=each, name="it is so", state=CheckState.FAIL) for each in ("agent", "checks", "twice")]
    assert (await ready.heartbeat(checks=[*false, false[-1]])).is_success
    await ready.settle()
    ready.clock.passed += AGENTS_S
    await ready.settle()
    checks = await ok(ready.admin.get(f"{V1}/health/checks?node=worker1"))
    assert {each["check"]: each["state"] for each in checks} == {"agent": "ok", "twice": "fail"}
