"""The scheduler's loop: what it reads, what it leaves out, what it writes, and what it tells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.policy import UserRole
from api.clock import now
from api.control.loop import Loop
from api.control.project_states import micros
from api.resources.nodes.fleet import Fleet
from api.resources.sessions import scheduling, service
from api.scheduler.planner import Planner
from api.scheduler.record import load
from api.scheduler.snapshot import Decision, Snapshot
from api.tables.sessions import State
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body, delete, run

pytestmark = pytest.mark.anyio


def loop_of(cluster: Cluster) -> Loop:
    return cluster.manager.loop


def count_decisions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often it is decided."""
    decided: list[int] = []
    decide = Planner.decide

    def counting(self: Planner, queue: Any, *args: Any, **more: Any) -> Any:
        decided.append(len(queue))
        return decide(self, queue, *args, **more)

    monkeypatch.setattr(Planner, "decide", counting)
    return decided


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


async def test_nothing_is_decided_while_nothing_waits(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(ready)
    decided = count_decisions(monkeypatch)
    await loop_of(ready).run()
    assert decided == []


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


async def test_a_session_is_taken_back_and_starts_again(ready: Cluster) -> None:
    """team-b uses what is idle until team-a asks for its own."""
    await ready.add_project("team-b", 0)
    await ready.submit("guest", project="team-b", gpu_milli=4000)
    await ready.settle()
    guest = await ready.session("guest", "team-b")
    assert guest["state"] == "RUNNING"
    await ready.submit("owner", gpu_milli=2000)
    await loop_of(ready).run()
    stopped = await ready.session("guest", "team-b")
    assert stopped["state"] == "TERMINATING"
    assert stopped["reason"].startswith("reclaimed for a session of another project: ")
    assert (await ready.session("owner"))["cause"] == "reclaiming"
    await ready.settle()
    assert (await ready.session("owner"))["state"] == "RUNNING"
    again = await ready.session("guest", "team-b")
    assert (again["state"], again["attempt"], again["node"]) == ("PENDING", 1, None)
    cycle = loop_of(ready).last
    assert cycle is not None
    (waiting,) = cycle.snapshot.queue
    assert waiting.waiting_since > waiting.submitted_at, "its wait counts from when it came back"
    await delete(ready, "owner")
    await ready.settle()
    again = await ready.session("guest", "team-b")
    assert (again["state"], again["attempt"]) == ("RUNNING", 1)
    assert f"session-{again['id']}-1-0" in {key for _, key in ready.engine.containers}


async def on_halves_of_two_gpus(cluster: Cluster) -> None:
    """Two of four GPUs are half in use each, and one session asks for three."""
    for name in ("h1", "h2", "h3", "h4"):
        await run(cluster, name, gpu_milli=500, cpu_milli=500, memory_mib=512)
    await run(cluster, "whole", gpu_milli=2000, cpu_milli=500, memory_mib=512, preemptible=False)
    for name in ("h2", "h4"):
        await delete(cluster, name)
    await cluster.settle()
    await cluster.submit("own", gpu_milli=1000, cpu_milli=500, memory_mib=512)


async def test_a_session_moves_where_that_lets_another_start(ready: Cluster) -> None:
    await on_halves_of_two_gpus(ready)
    await ready.settle()
    assert (await ready.session("own"))["state"] == "PENDING", "nobody is moved before the administrator wants it"
    wanted = {"consolidation": True, "moves_per_hour": 1}
    loop = ready.manager.loop = Loop(ready.database, ready.settings.model_copy(update=wanted))
    await loop.run()
    (moved,) = [each for each in (await ready.session("h1"), await ready.session("h3")) if each["state"] != "RUNNING"]
    assert moved["state"] == "TERMINATING"
    assert (
        moved["reason"]
        == "moved for team-a/own: own of team-a fits once it is elsewhere; room on worker1 is kept for it"
    )
    await ready.settle()
    found = [await ready.session(name) for name in ("h1", "h3", "own", "whole")]
    assert [(each["state"], each["attempt"]) for each in found] == [
        ("RUNNING", 1 if each["name"] == moved["name"] else 0) for each in found
    ]
    await delete(ready, "own")
    await delete(ready, "h1" if moved["name"] == "h3" else "h3")
    await ready.submit("next", gpu_milli=1000)
    await ready.settle()
    cycle = await Loop(ready.database, ready.settings).last_cycle()
    (known,) = [each.workload for each in cycle.snapshot.running if each.workload.name == moved["name"]]
    assert (known.moves, known.moved_at > 0) == (1, True)
    assert known.requeued_at > known.moved_at, "one that runs again tells when it was stopped"


async def test_who_is_moved_for_one_that_is_deleted_meanwhile_keeps_its_places(ready: Cluster) -> None:
    await on_halves_of_two_gpus(ready)
    loop = ready.manager.loop = Loop(ready.database, ready.settings.model_copy(update={"consolidation": True}))
    await loop.run()
    (moved,) = [name for name in ("h1", "h3") if (await ready.session(name))["state"] == "TERMINATING"]
    await delete(ready, "own")
    loop.rest()
    for name in ("late1", "late2", "late3"):
        await ready.submit(name, gpu_milli=500, cpu_milli=500, memory_mib=512)
    await loop.run()
    await ready.settle()
    assert (await ready.session(moved))["state"] == "RUNNING"


async def test_a_session_that_has_just_begun_is_spared_for_its_time(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(ready.database, ready.settings.model_copy(update={"min_runtime_s": 3600}))
    await ready.add_project("team-b", 0)
    await ready.submit("guest", project="team-b", gpu_milli=4000)
    await ready.settle()
    await ready.submit("owner", gpu_milli=2000)
    decided = count_decisions(monkeypatch)
    for _ in range(3):
        await loop.run()
    assert len(decided) == 1, "nothing is new"
    assert (await ready.session("guest", "team-b"))["state"] == "RUNNING"
    in_an_hour = now() + timedelta(seconds=3600)
    monkeypatch.setattr("api.control.loop.now", lambda: in_an_hour)
    await loop.run()
    assert (await ready.session("guest", "team-b"))["state"] == "TERMINATING"


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


async def test_a_project_spares_its_own_sessions_for_longer(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loop_of(ready)
    await ready.add_project("team-b", 0)
    await ok(ready.admin.patch(f"{V1}/projects/team-b", json={"min_runtime_s": 3600}))
    await ready.submit("guest", project="team-b", gpu_milli=4000)
    await ready.settle()
    await ready.submit("owner", gpu_milli=2000)
    await loop.run()
    assert (await ready.session("guest", "team-b"))["state"] == "RUNNING"
    in_an_hour = now() + timedelta(seconds=3600)
    monkeypatch.setattr("api.control.loop.now", lambda: in_an_hour)
    await loop.run()
    assert (await ready.session("guest", "team-b"))["state"] == "TERMINATING"


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
