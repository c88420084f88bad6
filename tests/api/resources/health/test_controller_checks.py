"""Checks that the controller makes: of nodes without an agent, of backups, and whether it reports at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from common.repair_protocol import CONTROLLER, CONTROLLER_PATH, SILENT_S
from tests.api.cluster import V1, Cluster, ok

pytestmark = pytest.mark.anyio


@pytest.fixture
async def controller(ready: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    async with ready.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": CONTROLLER}) as client:
        yield client


def check(identity: str, state: str, thing: str = "") -> dict[str, str]:
    return {"id": identity, "name": f"{identity} is well", "state": state, "thing": thing, "evidence": "97 % is full"}


async def tell(controller: httpx.AsyncClient, **nodes: list[dict[str, str]]) -> None:
    told = [{"node": "" if name == "site" else name, "checks": checks} for name, checks in nodes.items()]
    await ok(controller.post(CONTROLLER_PATH, json={"nodes": told}))


async def seen(cluster: Cluster, **query: str) -> dict[tuple[str, str, str], str]:
    found: list[dict[str, Any]] = await ok(cluster.admin.get(f"{V1}/health/checks", params=query))
    return {(each["node"], each["check"], each["thing"]): each["state"] for each in found}


async def passes(cluster: Cluster, seconds: float) -> None:
    """Let time pass for the leader until it has looked at the site again."""
    for step in (seconds, 11.0):
        cluster.clock.passed += step
        cluster.clock.ahead += timedelta(seconds=step)
        await cluster.settle()


async def test_a_node_without_an_agent_has_checks_and_a_history(ready: Cluster, controller: httpx.AsyncClient) -> None:
    full = check("disk", "fail", "/")
    await tell(controller, storage1=[full, check("clock", "ok")], storage2=[full], site=[check("backup.age", "fail")])
    assert await seen(ready, node="storage1") == {("storage1", "clock", ""): "ok", ("storage1", "disk", "/"): "fail"}
    assert (await seen(ready))["", "backup.age", ""] == "fail"
    await tell(controller, storage1=[check("disk", "ok", "/")], site=[check("backup.age", "ok")])
    assert await seen(ready, node="storage1") == {("storage1", "disk", "/"): "ok"}
    assert await seen(ready, node="storage2") == {}, "it has left the site"
    changes = await ok(ready.admin.get(f"{V1}/health/changes?node=storage1"))
    assert [(one["check"], one["before"], one["after"]) for one in changes] == [
        ("disk", "fail", "ok"),
        ("disk", None, "fail"),
    ]
    assert (
        'penstock_check_state{acknowledged="no",check="disk",node="storage1"'
        in (await ready.admin.get(f"{V1}/metrics")).text
    )


async def test_a_check_of_a_node_without_an_agent_is_cleared_until_it_is_worse(
    ready: Cluster, controller: httpx.AsyncClient
) -> None:
    for state in ("ok", "warn"):
        await tell(controller, storage1=[check("disk", state, "/")])
    [found] = await ok(ready.admin.get(f"{V1}/health/checks?node=storage1"))
    await ok(ready.admin.post(f"{V1}/health/checks/{found['id']}/clear"))
    last = (await ok(ready.admin.get(f"{V1}/health/changes?node=storage1")))[0]
    assert (last["before"], last["after"]) == ("warn", "ok")
    await tell(controller, storage1=[check("disk", "warn", "/")])
    assert await seen(ready, node="storage1") == {("storage1", "disk", "/"): "ok"}
    await tell(controller, storage1=[check("disk", "fail", "/")])
    assert await seen(ready, node="storage1") == {("storage1", "disk", "/"): "fail"}


async def test_what_the_leader_finds_of_the_site_stands_beside_it(
    ready: Cluster, controller: httpx.AsyncClient
) -> None:
    await tell(controller, site=[check("backup.age", "ok")])
    await passes(ready, 11)
    found = await seen(ready, node="")
    assert {("", "backup.age", ""), ("", "controller", ""), ("", "database", "")} <= found.keys()
    await tell(controller, site=[check("backup.age", "ok")])
    assert (await seen(ready, node="")).keys() == found.keys()


async def test_a_controller_that_is_silent_fails_until_it_reports(
    ready: Cluster, controller: httpx.AsyncClient
) -> None:
    await passes(ready, 11)
    assert ("", "controller", "") not in await seen(ready), "this site has none yet"
    await tell(controller, site=[])
    # orders are asked for all the time: they are no look
    await ok(controller.post(CONTROLLER_PATH, json={"wants": False}))
    await passes(ready, 19 * 60)
    assert (await seen(ready))["", "controller", ""] == "ok"
    await passes(ready, 60)
    [found] = await ok(ready.admin.get(f"{V1}/health/checks?node=&state=fail"))
    assert (found["check"], found["evidence"][:12]) == ("controller", "silent since")
    await passes(ready, SILENT_S)
    assert len(await ok(ready.admin.get(f"{V1}/health/changes?check=controller"))) == 1
    await tell(controller, site=[])
    assert (await seen(ready))["", "controller", ""] == "ok"
