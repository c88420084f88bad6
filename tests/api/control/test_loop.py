"""The scheduler's loop: when it decides, what it leaves out, what it writes, and what it tells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.policy import UserRole
from api.clock import now
from api.control.loop import Loop
from api.resources.sessions import scheduling, service
from api.scheduler.planner import Planner
from api.scheduler.record import load
from api.scheduler.snapshot import Decision, Snapshot
from api.tables.sessions import State
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.control.decisions import count_decisions, loop_of
from tests.api.steps import body, delete, run

pytestmark = pytest.mark.anyio


async def test_nothing_is_decided_while_nothing_waits(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(ready)
    decided = count_decisions(monkeypatch)
    await loop_of(ready).run()
    assert decided == []


async def test_many_starts_and_ends_take_no_more_statements_than_two(ready: Cluster, statements: list[str]) -> None:
    async def counted(count: int) -> tuple[int, int]:
        name = f"b{count}"
        body = {"name": name, "project": "team-a", "image": "python", "gpu_milli": 100, "count": count}
        await ok(ready.admin.post(f"{V1}/sessions/batch", json=body))
        statements.clear()
        await ready.settle()
        started = len(statements)
        assert set((await ready.states()).values()) - {"TERMINATED"} == {"RUNNING"}
        for number in range(1, count + 1):
            await delete(ready, f"{name}-{number}")
        statements.clear()
        await ready.settle()
        assert set((await ready.states()).values()) == {"TERMINATED"}
        return started, len(statements)

    await counted(2)
    two, twenty = await counted(3), await counted(20)
    assert twenty[0] <= two[0] + 6
    assert twenty[1] <= two[1] + 6


async def test_an_idle_pass_is_a_glance(ready: Cluster, statements: list[str]) -> None:
    await run(ready)
    ready.clock.passed += 1
    statements.clear()
    await ready.manager.reconcile()
    assert len(statements) == 1


async def test_a_full_cluster_is_not_looked_at_again_and_again(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(ready, gpu_milli=4000)
    await ready.submit("next", gpu_milli=1000)
    await ready.settle()
    await loop_of(ready).run()
    decided = count_decisions(monkeypatch)
    statements: list[str] = []
    event.listen(ready.database.engine.sync_engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    for _ in range(5):
        await loop_of(ready).run()
    assert decided == []
    assert {statement.split()[0] for statement in statements} == {"SELECT"}, "nothing is written"
    await ready.add_node("worker2")
    assert decided == [1]
    assert (await ready.session("next"))["state"] == "RUNNING"


async def test_who_is_left_out_has_its_turn_though_nothing_changes(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions follow one another until all have had a turn since the last change, and then no more."""
    await run(ready, gpu_milli=4000)
    for at in range(3):
        await ready.submit(f"next{at}", gpu_milli=1000)
    await ready.settle()
    rounds = iter((("a", "b", "c"), ("c",), ("a", "b"), ("b",), ("a",), ("b",)))
    seen: list[tuple[str, ...]] = []
    decide_on = Planner.decide_on

    def leaving_out(planner: Planner, snapshot: Snapshot) -> Decision:
        seen.append(snapshot.left_out)
        return replace(decide_on(planner, snapshot), left_out=next(rounds))

    monkeypatch.setattr(Planner, "decide_on", leaving_out)
    for expected in ([(), ("a", "b", "c"), ("c",)], [("a", "b"), ("b",), ("a",)]):
        seen.clear()
        loop_of(ready)._token = None
        for _ in range(5):
            await loop_of(ready).run()
        assert seen == expected


@pytest.mark.parametrize("change", [{"quota_milli": 2000}, {"over_quota": True}])
async def test_a_change_of_the_project_is_noticed(ready: Cluster, change: dict[str, Any]) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 1000, "over_quota": False}))
    await run(ready, gpu_milli=1000)
    await ready.submit("next", gpu_milli=1000)
    await ready.settle()
    await loop_of(ready).run()
    assert (await ready.session("next"))["cause"] == "quota"
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json=change))
    await ready.settle()
    assert (await ready.session("next"))["state"] == "RUNNING"


async def test_why_it_waits_is_written_once(ready: Cluster) -> None:
    await run(ready, gpu_milli=4000)
    await ready.submit("next", gpu_milli=1000)
    await ready.settle()
    async with ready.database.reading() as db:
        (before,) = await service.in_states(db, [State.PENDING])
    loop_of(ready)._token = None
    await loop_of(ready).run()
    async with ready.database.reading() as db:
        (after,) = await service.in_states(db, [State.PENDING])
    assert (after.reason, after.revision) == (before.reason, before.revision)


async def test_what_others_changed_meanwhile_stays(ready: Cluster) -> None:
    """Between reading and writing a user deletes the session."""
    await ready.submit("demo")

    @asynccontextmanager
    async def late() -> AsyncIterator[AsyncSession]:
        await delete(ready)
        async with ready.database.transaction() as db:
            yield db

    assert await loop_of(ready).run(late) == 0
    assert (await ready.session("demo"))["state"] == "TERMINATED"
    assert (await ready.session("demo"))["containers"] == []


async def test_what_was_read_is_nothing_new_while_others_have_transactions_open(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = count_decisions(monkeypatch)
    async with ready.database.transaction() as others:
        await others.execute(select(func.pg_current_xact_id()))
        await ready.submit("guest", gpu_milli=4000)
        await ready.settle()
        await ready.submit("owner", gpu_milli=2000)
        loop, before = Loop(ready.database, ready.settings), len(decided)
        for _ in range(3):
            await loop.run()
    assert len(decided) == before + 1


async def test_a_project_before_its_period_waits(ready: Cluster) -> None:
    await ready.submit("demo")
    soon = now() + timedelta(hours=1)
    period = {"starts_at": soon.isoformat(), "ends_at": None}
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"period": period}))
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["cause"], session["position"]) == ("PENDING", "not-active", 0)
    assert "begins at" in session["reason"]


async def test_pending_reasons_leave_alone_what_has_changed(ready: Cluster) -> None:
    await ready.submit("demo")
    async with ready.database.transaction() as db:
        (row,) = await scheduling.pending(db, now())
        late = scheduling.PendingReasonUpdate(row.id, row.revision + 1, "late", "no-room", 7)
        await scheduling.note_pending_reasons(db, [late])
    assert (await ready.session("demo"))["position"] == 0


async def test_the_queue_and_the_last_cycle_can_be_looked_at(ready: Cluster) -> None:
    await ok(ready.admin.post(f"{V1}/sessions/batch", json=body("job", count=6, gpu_milli=1000)))
    async with await ready.user("eve", UserRole.AUDITOR) as auditor, await ready.user("alice") as alice:
        before = load((await auditor.get(f"{V1}/scheduler/cycle")).text)
        assert len(before[1].placements) == 4, "a process that has run none tells what it would decide"
        assert set((await ready.states()).values()) == {"PENDING"}
        await ready.settle()
        queue = await ok(auditor.get(f"{V1}/scheduler/queue"))
        assert [(row["name"], row["position"], row["cause"]) for row in queue] == [
            ("job-5", 1, "fair-share"),
            ("job-6", 2, "fair-share"),
        ]
        snapshot, decision = load((await auditor.get(f"{V1}/scheduler/cycle")).text)
        assert Planner.of(snapshot).decide(snapshot.queue, snapshot.now, snapshot.settings) == decision
        await refused(alice.get(f"{V1}/scheduler/queue"), 403)
        await refused(alice.get(f"{V1}/scheduler/cycle"), 403)


async def test_what_people_are_told_is_no_reason_to_decide_again(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(ready, gpu_milli=4000)
    await loop_of(ready).run()
    decided = count_decisions(monkeypatch)
    await ok(ready.admin.post(f"{V1}/sessions/batch", json=body("job", count=3, gpu_milli=1000)))
    for _ in range(3):
        await loop_of(ready).run()
    assert decided == [3]
    assert [(await ready.session(f"job-{number}"))["position"] for number in (1, 2, 3)] == [1, 2, 3]


async def test_a_node_that_is_deleted_meanwhile_gets_nothing_and_hinders_nobody(ready: Cluster) -> None:
    """Between reading and writing an administrator deletes one of the nodes that were chosen."""
    await ready.add_node("worker2")
    for name in ("one", "two"):
        await ready.submit(name, gpu_milli=4000)

    @asynccontextmanager
    async def late() -> AsyncIterator[AsyncSession]:
        await ok(ready.admin.patch(f"{V1}/nodes/worker2/mode", json={"mode": "maintenance"}))
        await ok(ready.admin.delete(f"{V1}/nodes/worker2"))
        async with ready.database.transaction() as db:
            yield db

    assert await loop_of(ready).run(late) == 1
    found = {(session["state"], session["node"]) for name in ("one", "two") if (session := await ready.session(name))}
    assert found == {("SCHEDULED", "worker1"), ("PENDING", None)}
