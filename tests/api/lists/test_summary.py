"""What somebody runs, may run, and where there is room for it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from api.lists.summary import RoomOfGroups
from api.tables.nodes import Gpu, Node
from api.tables.sessions import Session
from tests.api.cluster import V1, Cluster, ok

pytestmark = pytest.mark.anyio


async def summary(cluster: Cluster, client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    """Return the summary, with what is free looked at anew."""
    cluster.app.state.room_of_groups = RoomOfGroups()
    return dict(await ok(client.get(f"{V1}/summary", params=query)))


def told(mine: dict[str, Any]) -> dict[str, tuple[int | None, ...]]:
    """Return what a summary tells of each limit: what is held, what is waited for, what may be, and what is left."""
    fields = ("held", "waiting", "most", "left")
    return {limit["of"]: tuple(limit[field] for field in fields) for limit in mine["limits"]}


async def test_in_use_is_what_is_held_and_what_waits_is_told_apart(ready: Cluster) -> None:
    policy = {"name": "small", "max_sessions": 9, "max_gpu_milli": 20000, "max_memory_mib": 65536}
    await ok(ready.admin.post(f"{V1}/user-policies", json=policy))
    await ok(ready.admin.patch(f"{V1}/users/admin", json={"policy": "small"}))
    await ready.submit("gang", 1000, replicas=2, max_replicas=8, memory_mib=1024, cpu_milli=1000)
    await ready.settle()
    await ready.submit("late", 4000, memory_mib=1024, cpu_milli=1000)
    await ready.settle()
    gang, late = await ready.session("gang"), await ready.session("late")
    assert (gang["state"], late["state"]) == ("RUNNING", "PENDING")
    held = gang["held_milli"]
    limits = told(await summary(ready, ready.admin))
    assert 0 < held < 8000, "it has not all that it may get"
    assert limits["gpu_milli"] == (held, 12000 - held, 20000, 8000)
    assert limits["sessions"] == (1, 1, 9, 7)
    assert limits["memory_mib"] == (gang["replicas"] * 1024, (9 - gang["replicas"]) * 1024, 65536, 65536 - 9 * 1024)


async def test_what_waits_is_told_where_what_is_held_has_no_limit_and_the_other_way_round(ready: Cluster) -> None:
    await ready.submit("first", 4000, preemptible=False, memory_mib=1024, cpu_milli=1000)
    await ready.settle()
    await ready.submit("late", 1000, memory_mib=1024, cpu_milli=1000)
    await ready.settle()
    assert await ready.states() == {"first": "RUNNING", "late": "PENDING"}
    async with ready.database.transaction() as db:
        await db.execute(update(Session).where(Session.name == "first").values(memory_mib=0))
        await db.execute(update(Session).where(Session.name == "late").values(cpu_milli=0))
    limits = told(await summary(ready, ready.admin))
    assert limits["memory_mib"] == (None, 1024, None, None)
    assert limits["cpu_milli"] == (1000, None, None, None)


async def test_an_elastic_session_without_a_limit_waits_for_no_amount_while_it_may_get_more(ready: Cluster) -> None:
    await ready.submit("gang", 1000, replicas=4, max_replicas=6, memory_mib=1024)
    await ready.settle()
    async with ready.database.transaction() as db:
        await db.execute(update(Session).values(memory_mib=0))
    assert told(await summary(ready, ready.admin))["memory_mib"] == (None, None, None, None)
    async with ready.database.transaction() as db:
        await db.execute(update(Session).values(max_replicas=4))
    assert told(await summary(ready, ready.admin))["memory_mib"] == (None, 0, None, None)


async def test_what_runs_stands_before_a_batch_that_waits(ready: Cluster) -> None:
    """Newer ones that wait hide none that runs."""
    await ready.submit("running", gpu_milli=1000)
    await ready.settle()
    body = {"project": "team-a", "image": "python", "gpu_milli": 4000, "preemptible": False}
    for number in range(3):
        await ok(ready.admin.post(f"{V1}/sessions", json={"name": f"waiting-{number}", **body}))
    await ready.settle()
    for limit, names in (
        (1, ["running"]),
        (3, ["running", "waiting-2", "waiting-1"]),
        (4, ["running", "waiting-2", "waiting-1", "waiting-0"]),
    ):
        mine = await summary(ready, ready.admin, limit=limit)
        assert ([each["name"] for each in mine["sessions"]], mine["more"]) == (names, limit < 4)


async def test_it_names_own_sessions_limits_and_what_is_left_of_them(ready: Cluster) -> None:
    policy = {"name": "small", "max_sessions": 3, "max_gpu_milli": 2000}
    await ok(ready.admin.post(f"{V1}/user-policies", json=policy))
    await ready.submit("of-another")
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/users/alice", json={"policy": "small"}))
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        body = {"project": "team-a", "image": "python", "gpu_milli": 500, "memory_mib": 1024}
        for name in ("first", "second"):
            await ok(alice.post(f"{V1}/sessions", json={"name": name, **body}))
        mine = await summary(ready, alice)
        assert ([each["name"] for each in mine["sessions"]], mine["more"]) == (["second", "first"], False)
        short = await summary(ready, alice, limit=1)
        assert ([each["name"] for each in short["sessions"]], short["more"]) == (["second"], True)
    limits = told(mine)
    assert (limits["sessions"], limits["gpu_milli"]) == ((0, 2, 3, 1), (0, 1000, 2000, 1000))
    assert limits["memory_mib"] == (0, 2048, None, None)
    (project,) = mine["projects"]
    assert (project["name"], project["quota_milli"]) == ("team-a", 4000)


async def test_room_is_told_of_the_groups_that_one_may_use_alone(ready: Cluster) -> None:
    for name in ("worker2", "worker3", "worker4"):
        await ready.add_node(name)
    await ok(ready.admin.patch(f"{V1}/nodes/worker4/mode", json={"mode": "maintenance"}))
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        for name, node, people in (("ours", "worker2", ["alice"]), ("theirs", "worker3", [])):
            group = {"name": name, "nodes": [node], "users": people}
            await ok(ready.admin.post(f"{V1}/resource-groups", json=group))
        await ready.submit("work", 1500, cpu_milli=1000)
        await ready.settle()
        assert (await ready.session("work"))["node"] == "worker1"
        groups = {group["name"]: group for group in (await summary(ready, alice))["groups"]}
    assert set(groups) == {"", "ours"}, "nodes of no group are for everybody"
    assert (groups["ours"]["nodes"], groups["ours"]["gpu_milli"], groups["ours"]["free_gpu_milli"]) == (1, 4000, 4000)
    assert groups[""]["nodes"] == 1, "what takes nothing new has no room"
    assert groups[""]["gpu_milli"] - groups[""]["free_gpu_milli"] in (1500, 2000)
    assert groups[""]["cpu_milli"] - groups[""]["free_cpu_milli"] >= 1000


async def test_room_is_told_where_sessions_of_ones_projects_may_run(ready: Cluster) -> None:
    groups = {"day": ["worker2"], "night": ["worker3"], "open": ["worker4"]}
    for name, (node,) in groups.items():
        await ready.add_node(node)
        group = {"name": name, "nodes": [node], "open": name == "open"}
        await ok(ready.admin.post(f"{V1}/resource-groups", json=group))
    async with await ready.user("alice") as alice:

        async def told() -> list[str]:
            return [group["name"] for group in (await summary(ready, alice))["groups"]]

        assert await told() == [], "nobody runs anything without a project"
        change: dict[str, Any] = {"members": ["alice"], "training_group": "night"}
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json=change))
        assert await told() == ["", "night", "open"], "interactive work may run anywhere yet"
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"interactive_group": "day"}))
        assert await told() == ["day", "night"]


async def test_what_others_hold_of_a_node_is_not_free(ready: Cluster) -> None:
    (before,) = (await summary(ready, ready.admin))["groups"]
    async with ready.database.transaction() as db:
        gpu = await db.scalar(select(Gpu.uuid).limit(1))
        orphaned = {str(gpu): 600, "GPU-that-is-gone": 1000}
        values = {"orphaned_milli": orphaned, "foreign_cpu_milli": 1500, "foreign_memory_mib": 64}
        await db.execute(update(Node).values(**values))
    (after,) = (await summary(ready, ready.admin))["groups"]
    less = {"free_gpu_milli": 600, "free_cpu_milli": 1500, "free_memory_mib": 64}
    assert after == before | {field: before[field] - amount for field, amount in less.items()}
