"""The snapshot that the scheduler decides from: what of the database stands in it, and what of it is read again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.control.loop import Loop
from api.control.project_states import micros
from api.resources.groups import service as groups
from api.resources.groups.permissions import Permissions
from api.resources.nodes.fleet import Fleet
from tests.api.cluster import V1, Cluster, ok
from tests.api.control.decisions import loop_of
from tests.api.steps import delete, run

pytestmark = pytest.mark.anyio


async def test_the_snapshot_is_what_the_database_says(ready: Cluster) -> None:
    await run(ready, "first", gpu_milli=1500, preset="small", preemptible=False)
    await ready.submit("second", gpu_milli=4000, replicas=1, gpu_models=["simulated"], priority=40)
    await loop_of(ready).run()
    cycle = loop_of(ready).last
    assert cycle is not None
    snapshot = cycle.snapshot
    (node,) = snapshot.nodes
    assert (node.name, len(node.gpus), node.cpu_milli, node.memory_mib, node.open) == ("worker1", 4, 8000, 32768, True)
    (project,) = snapshot.projects
    assert (project.name, project.quota_milli, project.over_quota) == ("team-a", 4000, True)
    (running,) = snapshot.running
    assert [share.milli for placement in running.placements for share in placement.shares] == [500, 1000]
    assert (running.workload.name, running.workload.cpu_milli, running.workload.preemptible) == ("first", 1000, False)
    (waiting,) = snapshot.queue
    assert (waiting.name, waiting.gpu_models, waiting.priority) == ("second", ("Simulated GPU",), 40)


async def test_the_snapshot_says_when_what_runs_ends(ready: Cluster) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"interactive_limit_s": 3600}))
    await run(ready, "first", gpu_milli=4000, memory_mib=1024, kind="interactive")
    await run(ready, "cpu", gpu_milli=0, cpu_milli=1000, kind="training")
    await ready.submit("second", gpu_milli=1000, kind="interactive")
    await loop_of(ready).run()
    expires_at = (await ready.session("first"))["expires_at"]

    async def ends() -> dict[str, int]:
        cycle = loop_of(ready).last
        assert cycle is not None
        assert [each.limit_s for each in cycle.snapshot.queue] == [3600]
        return {each.workload.name: each.ends_at for each in cycle.snapshot.running}

    assert await ends() == {"first": micros(datetime.fromisoformat(expires_at)), "cpu": 0}
    until = now() + timedelta(minutes=30)
    period = {"ends_at": until.isoformat()}
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"period": period, "on_expiry": "stop"}))
    await loop_of(ready).run()
    assert await ends() == dict.fromkeys(("first", "cpu"), micros(until))


async def test_the_snapshot_knows_limits_that_users_give(ready: Cluster) -> None:
    await ready.submit("first", gpu_milli=4000, memory_mib=1024, limit_s=600)
    loop = loop_of(ready)
    await loop.run()
    await ready.submit("second", limit_s=60)
    await loop.run()
    assert loop.last is not None
    assert [each.limit_s for each in loop.last.snapshot.queue] == [60]
    (first,) = loop.last.snapshot.running
    scheduled_at = (await ready.session("first"))["scheduled_at"]
    assert first.ends_at == micros(datetime.fromisoformat(scheduled_at) + timedelta(seconds=600))


async def test_what_is_reserved_is_part_of_the_next_snapshot(ready: Cluster) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 8000}))
    await run(ready, "first", gpu_milli=3000, preemptible=False)
    await ready.submit("large", gpu_milli=4000)
    loop = loop_of(ready)
    loop._scheduler_settings = replace(loop._scheduler_settings, reserve_after_s=0)
    await loop.run()
    assert loop.last is not None
    assert [len(places) for places in loop.last.decision.reservations.values()] == [1]
    reserved = dict(loop.last.decision.reservations)
    await ready.submit("small", gpu_milli=1000)
    await loop.run()
    assert loop.last.snapshot.reservations == reserved
    assert (await ready.session("small"))["state"] == "PENDING"


async def test_what_is_told_of_changes_is_what_a_new_leader_reads(ready: Cluster) -> None:
    """Sessions come, run, change and go, one node closes: the loop knows what one that reads all does."""
    await ready.add_node("worker2")
    for name in ("one", "two", "three"):
        await run(ready, name, gpu_milli=1000)
    await ready.submit("large", gpu_milli=4000, replicas=2)
    await delete(ready, "two")
    await ready.settle()
    await ok(ready.admin.patch(f"{V1}/nodes/worker2/mode", json={"mode": "maintenance"}))
    await delete(ready, "three")
    await ready.settle()
    await ready.submit("next", gpu_milli=1000)
    await ready.settle()
    await loop_of(ready).run()
    await ready.submit("last", gpu_milli=4000, replicas=2)
    await loop_of(ready).run()
    known, anew = loop_of(ready).last, await Loop(ready.database, ready.settings).last_cycle()
    assert known is not None
    assert {each.workload.name: each for each in known.snapshot.running} == {
        each.workload.name: each for each in anew.snapshot.running
    }
    assert {each.workload.name for each in anew.snapshot.running} == {"one", "next"}
    assert known.snapshot.nodes == anew.snapshot.nodes


async def test_who_may_use_which_group_is_read_when_somebody_may_use_another_one(ready: Cluster) -> None:
    fleet, asker = Fleet(), uuid4()

    async def usable() -> tuple[str, ...]:
        async with ready.database.reading() as db:
            await fleet.refresh(db)
        return fleet.permissions.usable(asker, frozenset())

    assert await usable() == ()
    await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": "all", "open": True}))
    assert await usable() == ("all",)
    before = fleet.permissions
    await ready.submit("demo")
    assert (await usable(), fleet.permissions) == (("all",), before)
    await ok(ready.admin.patch(f"{V1}/resource-groups/all", json={"open": False}))
    assert await usable() == ()


async def test_a_node_that_changes_is_the_only_one_that_is_read(ready: Cluster) -> None:
    await ready.add_node("worker2")
    fleet = Fleet()
    async with ready.database.reading() as db:
        await fleet.refresh(db)
        before = fleet.nodes
        version = fleet.version
        assert (await fleet.refresh(db), fleet.nodes) == (version, before)
    await ok(ready.admin.patch(f"{V1}/nodes/worker2/mode", json={"mode": "maintenance"}))
    async with ready.database.reading() as db:
        await fleet.refresh(db)
    assert fleet.nodes[0] is before[0]
    assert (before[1].open, fleet.nodes[1].open) == (True, False)
    await ready.heartbeat("worker1", gpus=2)
    await ready.manager.observe()
    async with ready.database.reading() as db:
        await fleet.refresh(db)
    assert [len(node.gpus) for node in fleet.nodes] == [2, 4]


ALICE, GROUP = f"{V1}/users/alice", f"{V1}/resource-groups/vision"


async def may_alice_use_it(cluster: Cluster, fleet: Fleet) -> bool:
    """Refresh, as a submission does, and return what is known then."""
    user = (await ok(cluster.admin.get(ALICE)))["id"]
    async with cluster.database.reading() as db:
        await fleet.refresh(db)
        return "vision" in fleet.permissions.usable(UUID(user), frozenset())


def once(
    monkeypatch: pytest.MonkeyPatch, *, before: Callable[[], Awaitable[Any]], after: Callable[[], Awaitable[Any]]
) -> None:
    """Let something happen right before and after who may use which groups is read, the next time only."""
    read = groups.permissions

    async def read_once(db: AsyncSession) -> Permissions:
        monkeypatch.setattr(groups, "permissions", read)
        await before()
        found = await read(db)
        await after()
        return found

    monkeypatch.setattr(groups, "permissions", read_once)


async def nothing() -> None:
    pass


async def test_who_may_use_a_group_no_longer_is_not_known_as_one_who_may(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user comes to the group while it is read, and leaves it: then all is as it was before the reading."""
    await ready.user("alice")
    await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": "vision"}))
    fleet = Fleet()

    async def let(*users: str) -> None:
        await ok(ready.admin.patch(GROUP, json={"users": users}))

    once(monkeypatch, before=partial(let, "alice"), after=nothing)
    assert await may_alice_use_it(ready, fleet)
    await let()
    assert not await may_alice_use_it(ready, fleet)


async def test_one_who_reads_groups_slowly_hides_no_change_from_others(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has read that the group is open; it is closed, and the second reads nodes while the first goes on."""
    await ready.user("alice")
    await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": "vision", "open": True}))
    fleet, read, goes_on, by_node = Fleet(), asyncio.Event(), asyncio.Event(), groups.by_node

    async def wait() -> None:
        read.set()
        await goes_on.wait()

    async def slow(*args: Any) -> dict[str, tuple[str, ...]]:
        monkeypatch.setattr(groups, "by_node", by_node)
        goes_on.set()
        await first
        return await by_node(*args)

    async def refresh() -> None:
        async with ready.database.reading() as db:
            await fleet.refresh(db)

    once(monkeypatch, before=nothing, after=wait)
    first = asyncio.create_task(refresh())
    await read.wait()
    await ok(ready.admin.patch(GROUP, json={"open": False}))
    monkeypatch.setattr(groups, "by_node", slow)
    assert not await may_alice_use_it(ready, fleet)
