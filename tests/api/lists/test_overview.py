"""The site at a glance: what there is of it, who holds how much, what is idle, and what waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update

from api.clock import now
from api.lists import nodes
from api.lists.overview import IDLE_AFTER, IdleGpus
from api.resources.nodes.fleet import Fleet
from api.resources.nodes.repository import CANNOT_BE_CALLED
from api.tables.metrics import GpuSample
from api.tables.nodes import Node, NodeState
from api.tables.sessions import Container, Session
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import run
from tests.bench.overview import fill

pytestmark = pytest.mark.anyio


async def seen(cluster: Cluster, **query: Any) -> dict[str, Any]:
    """Return the overview, with what is idle looked at anew."""
    cluster.app.state.idle_gpus = IdleGpus()
    return dict(await ok(cluster.admin.get(f"{V1}/overview", params=query)))


async def begun(cluster: Cluster, ago: timedelta) -> None:
    """Let all sessions and their containers have started a while ago."""
    async with cluster.database.transaction() as db:
        for table in (Session, Container):
            await db.execute(update(table).values(started_at=now() - ago))


async def sample(
    cluster: Cluster, session: dict[str, Any], busy_permille: int | None, ago: timedelta, rank: int = 0
) -> None:
    """Write what an agent saw of a GPU of one of a session's containers."""
    container = session["containers"][rank]
    at_s = int((now() - ago).timestamp())
    where = {"session_id": UUID(session["id"]), "rank": rank, "uuid": container["gpus"][0]["uuid"], "at_s": at_s}
    async with cluster.database.transaction() as db:
        db.add(GpuSample(**where, busy_permille=busy_permille, memory_mib=1, processes=1))


async def test_what_is_held_and_waited_for_is_added_up_by_project(ready: Cluster) -> None:
    await ready.add_project("team-b", 4000)
    await run(ready, "one", gpu_milli=2000)
    await run(ready, "two", gpu_milli=500)
    await ready.submit("three", 4000, preemptible=False)
    await ready.submit("four", 3000, "team-b", preemptible=False)
    await ready.settle()
    site = await seen(ready)
    assert (site["gpu_milli"], site["used_milli"], site["waiting_milli"]) == (4000, 2500, 7000)
    assert (site["node_count"], site["open_count"]) == (1, 1)
    assert {state: count for state, count in site["sessions"].items() if count} == {"RUNNING": 2, "PENDING": 2}
    assert [
        (each["name"], each["used_milli"], each["quota_milli"], each["waiting"], each["waiting_milli"])
        for each in site["projects"]
    ] == [("team-a", 2500, 4000, 1, 4000), ("team-b", 0, 4000, 1, 3000)]
    assert [each["name"] for each in site["running"]] == ["two", "one"]
    assert {each["name"] for each in site["waiting"]} == {"three", "four"}
    (node,) = site["nodes"]
    assert sum(gpu["used_milli"] for gpu in node["gpus"]) == 2500


async def test_the_site_on_which_it_is_measured_idles_as_that_says(cluster: Cluster) -> None:
    await fill(cluster, 2)
    site = await seen(cluster)
    assert (site["node_count"], site["used_milli"], site["idle_milli"]) == (2, 14000, 2000)


async def test_nodes_that_take_nothing_new_come_first(ready: Cluster) -> None:
    for name in ("worker2", "worker3"):
        await ready.add_node(name)
    await ok(ready.admin.patch(f"{V1}/nodes/worker3/mode", json={"mode": "maintenance"}))
    site = await seen(ready, nodes=2)
    assert (site["node_count"], site["open_count"]) == (3, 2)
    assert [node["name"] for node in site["nodes"]] == ["worker3", "worker1"]


@pytest.mark.parametrize(
    "change",
    [
        {"withheld": "drained by hand"},
        {"unknown_containers": 1},
        {"clock_offset_s": 90},
        {"message": f"{CANNOT_BE_CALLED}noon"},
        {"unhealthy": "its disk is full"},
        {"state": NodeState.LOST},
    ],
    ids=str,
)
async def test_nodes_that_get_no_sessions_are_not_open(ready: Cluster, change: dict[str, Any]) -> None:
    await ready.add_node("worker2")
    async with ready.database.transaction() as db:
        await db.execute(update(Node).where(Node.name == "worker2").values(**change))
    site, fleet = await seen(ready, nodes=1), Fleet()
    assert (site["node_count"], site["open_count"]) == (2, 1)
    assert [node["name"] for node in site["nodes"]] == ["worker2"]
    async with ready.database.reading() as db:
        await fleet.refresh(db)
    assert {node.name: node.open for node in fleet.nodes} == {"worker1": True, "worker2": False}


async def test_a_gpu_is_idle_when_its_session_did_nothing_with_it_for_ten_minutes(ready: Cluster) -> None:
    session = await run(ready, "one", gpu_milli=500)
    await sample(ready, session, 0, timedelta(minutes=1))
    assert (await seen(ready))["idle_milli"] == 0, "it has only begun"
    await begun(ready, timedelta(hours=1))
    site = await seen(ready)
    assert (site["idle_milli"], site["projects"][0]["idle_milli"]) == (500, 500)
    await sample(ready, session, 900, IDLE_AFTER + timedelta(minutes=1))
    assert (await seen(ready))["idle_milli"] == 500, "what it did before does not count"
    await sample(ready, session, 900, timedelta(minutes=9))
    assert (await seen(ready))["idle_milli"] == 0


async def test_a_container_that_came_later_is_not_idle_at_once(ready: Cluster) -> None:
    session = await run(ready, "gang", gpu_milli=1000, replicas=2)
    await begun(ready, timedelta(hours=1))
    async with ready.database.transaction() as db:
        await db.execute(update(Container).where(Container.rank == 1).values(started_at=now()))
    for rank in range(2):
        await sample(ready, session, 0, timedelta(minutes=1), rank)
    assert (await seen(ready))["idle_milli"] == 1000


@pytest.mark.parametrize("told", [None, "nothing"])
async def test_what_nobody_can_tell_is_not_idle(ready: Cluster, told: str | None) -> None:
    session = await run(ready, "one")
    await begun(ready, timedelta(hours=1))
    if told is None:
        await sample(ready, session, None, timedelta(minutes=1))
    assert (await seen(ready))["idle_milli"] == 0


async def test_a_large_site_takes_no_more_statements_than_a_small_one(
    ready: Cluster, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "GROUPS_S", 3600.0)

    async def sent() -> int:
        await ready.settle()
        statements.clear()
        await seen(ready)
        return len([each for each in statements if each.lstrip().startswith(("SELECT", "WITH"))])

    await run(ready, "first")
    await seen(ready)
    few = await sent()
    for number in range(3):
        await ready.add_node(f"more{number}")
        await ready.add_project(f"team-{number}", 1000)
        await ready.submit("work", 500, f"team-{number}")
    assert await sent() == few <= 14


async def test_members_do_not_see_the_site(ready: Cluster) -> None:
    async with await ready.user("alice") as alice:
        await refused(alice.get(f"{V1}/overview"), 403)
