"""Dry runs: what would become of a session, before anybody submits it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from ipaddress import IPv4Network
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from api.control import dry_runs
from api.control.loop import Loop
from api.database import SERVICES_LOCK
from api.endpoints.change_rate import DryRunRate
from api.resources.nodes import lending
from api.resources.sessions import scheduling
from api.scheduler import turns
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Workload
from api.tables.sessions import Session
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster
from tests.api.steps import body, delete, run, wish

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_runs, "KEPT_S", 0.0)


async def check(cluster: Cluster, **more: Any) -> dict[str, Any]:
    return dict(await ok(cluster.admin.post(f"{V1}/sessions/check", json=body("new", **more))))


async def test_what_fits_starts_and_what_does_not_says_why_and_where_it_stands(ready: Cluster) -> None:
    found = await check(ready, gpu_milli=4000)
    assert (found["starting"], found["waiting"], found["reason"], found["position"]) == (1, 0, "", 0)
    assert (found["gpu_milli"], found["memory_mib"] > 0) == (4000, True)
    assert await ready.states() == {}, "nothing was submitted"

    await run(ready, "first", gpu_milli=3000, preemptible=False)
    await ready.submit("second", gpu_milli=2000, preemptible=False)
    await ready.settle()
    found = await check(ready, gpu_milli=2000, preemptible=False)
    assert (found["starting"], found["waiting"], found["cause"]) == (0, 1, "quota")
    assert found["reason"]
    assert found["position"] == 2, "behind the one that waits already"
    assert await ready.states() == {"first": "RUNNING", "second": "PENDING"}


async def test_of_several_it_is_told_how_many_would_start(ready: Cluster) -> None:
    found = await check(ready, gpu_milli=1000, count=6)
    assert (found["starting"], found["waiting"]) == (4, 2)


async def test_it_knows_how_many_networks_are_free(database_url: str) -> None:
    """Of several gangs each needs one; none is taken by the dry run itself."""
    async with running_cluster(database_url, gang_networks=IPv4Network("10.9.0.0/26")) as narrow:
        await narrow.add_node()
        await narrow.add_image()
        await narrow.add_project("team-a", 4000)
        await run(narrow, "first", replicas=2)
        for _ in range(2):
            found = await check(narrow, replicas=2, count=2)
            assert (found["starting"], found["waiting"], found["cause"]) == (1, 1, "no-network")
            assert "all 2 networks between containers of a session are taken or kept" in found["reason"]
        await run(narrow, "second", replicas=2)
        assert (await check(narrow, replicas=2))["cause"] == "no-network"
        assert (await check(narrow, count=2))["starting"] == 2, "what is of one container needs none"
        await delete(narrow, "first")
        await narrow.settle()
        assert (await check(narrow, replicas=2))["starting"] == 1


async def test_victims_are_looked_for_though_those_before_it_take_all_the_time(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(ready, "fixed", gpu_milli=1000, preemptible=False)
    await run(ready, "low", gpu_milli=3000, priority=10)
    await ready.submit("in-vain", gpu_milli=4000, priority=95)
    await ready.settle()
    monkeypatch.setattr(turns, "STEPS", 2)
    assert (await check(ready, gpu_milli=1000, priority=90))["cause"] == "reclaiming"


async def test_no_session_that_ended_long_ago_is_read(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    horizons: list[int] = []
    changed = scheduling.changed

    async def noting(db: AsyncSession, horizon: int) -> dict[UUID, tuple[int, bool]]:
        horizons.append(horizon)
        return await changed(db, horizon)

    monkeypatch.setattr(scheduling, "changed", noting)
    await Loop(ready.database, ready.settings).last_cycle()
    assert [horizon > 0 for horizon in horizons] == [True]


async def test_a_later_start_is_why_it_waits(ready: Cluster) -> None:
    found = await check(ready, starts_at="2100-01-01T00:00:00Z")
    assert (found["starting"], found["cause"]) == (0, "not-due")
    assert "2100-01-01" in found["reason"]


async def test_it_says_what_the_submission_itself_would_be_and_no_more_is_decided(ready: Cluster) -> None:
    """The answer is the scheduler's own: submitted right afterwards, the same comes of it."""
    await run(ready, "first", gpu_milli=2500)
    for gpu_milli in (1500, 2000):
        found = await check(ready, gpu_milli=gpu_milli, preemptible=False)
        name = f"real-{gpu_milli}"
        await ready.submit(name, gpu_milli=gpu_milli, preemptible=False)
        await ready.settle()
        session = await ready.session(name)
        assert (session["state"] == "RUNNING") is bool(found["starting"]), session
        assert session["reason"] == found["reason"]


async def test_what_could_not_be_submitted_is_refused_the_same_way(ready: Cluster) -> None:
    told = await refused(ready.admin.post(f"{V1}/sessions/check", json=body("new", image="nothing")), 422)
    assert told["where"] == "image"
    await ready.submit("new")
    await refused(ready.admin.post(f"{V1}/sessions/check", json=body("new")), 409)


async def test_a_project_that_was_just_made_is_known(ready: Cluster) -> None:
    await check(ready)
    await ready.add_project("team-b", 1000)
    found = await ok(ready.admin.post(f"{V1}/sessions/check", json=body("new", project="team-b")))
    assert found["starting"] == 1


async def test_nobody_has_many_answers_made_at_once(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    decide = Planner.decide

    def wait(self: Planner, *args: Any, **more: Any) -> Any:
        assert go_on.wait(30)
        return decide(self, *args, **more)

    monkeypatch.setattr(Planner, "decide", wait)

    async def ask() -> httpx.Response:
        return await ready.admin.post(f"{V1}/sessions/check", json=body("new"))

    asking = [asyncio.create_task(ask()) for _ in range(dry_runs.AT_ONCE + 1)]
    try:
        # all others wait for the scheduler
        (refused_,), rest = await asyncio.wait(asking, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    finally:
        go_on.set()
    assert refused_.result().status_code == 429
    assert [answer.status_code for answer in await asyncio.gather(*rest)] == [200] * dry_runs.AT_ONCE
    assert (await check(ready))["starting"] == 1


async def test_many_are_made_as_one_without_its_words_and_hold_up_no_addresses(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks again and again has the database write as little as possible."""
    made: list[tuple[Any, ...]] = []
    locks: list[int] = []
    workloads = Loop.workloads

    async def look(self: Loop, db: AsyncSession, ids: Collection[UUID]) -> list[Workload]:
        made.extend((await db.execute(select(Session.command, Session.args, Session.environment))).tuples())
        held = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND objid = :lock"
        locks.append((await db.execute(text(held), {"lock": SERVICES_LOCK})).scalar_one())
        return await workloads(self, db, ids)

    monkeypatch.setattr(Loop, "workloads", look)
    words = {
        "command": ["sh"],
        "args": ["-c", "true"],
        "environment": {f"LONG_{each}": "x" * 30_000 for each in range(4)},
    }
    found = await check(ready, count=3, ports=[8080], **words)
    assert (found["starting"], made, locks) == (3, [(None, [], {})], [0])


async def test_addresses_that_others_have_are_refused_all_the_same(ready: Cluster) -> None:
    notebook: dict[str, Any] = {"ports": [8888], "args": ["--ServerApp.base_url=/team-a/lab"]}
    await ready.submit("first", **notebook)
    told = await refused(ready.admin.post(f"{V1}/sessions/check", json=body("new", **notebook)), 409)
    assert told["reason"] == "the base_url team-a/lab is taken"


async def test_who_asks_without_end_is_slowed_down(ready: Cluster) -> None:
    ready.app.state.dry_run_rate = DryRunRate(2, ready.clock)
    for _ in range(2):
        await check(ready)
    answer = await ready.admin.post(f"{V1}/sessions/check", json=body("new"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "30")
    answer = await ready.admin.post("/launch/check", data={"name": "new"})
    assert answer.status_code == 429, "the form of the console counts, too"
    ready.clock.passed += 30
    await check(ready)


async def test_nodes_that_lend_nothing_have_no_place(ready: Cluster) -> None:
    async with ready.database.transaction() as db:
        await lending.note(db, {"worker1": "Slurm: drained"}, {})
    found = await check(ready)
    assert (found["starting"], "Slurm: drained" in found["reason"]) == (0, True), found
    cycle = await ready.manager.loop.last_cycle()
    assert [(node.open, node.unhealthy) for node in cycle.snapshot.nodes] == [(False, "Slurm: drained")]


async def test_what_the_scheduler_fails_at_is_said_to_be_so(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(_: Loop, __: AsyncSession, ___: Collection[UUID]) -> list[Workload]:
        return []

    monkeypatch.setattr(Loop, "workloads", none)
    answer = await ready.admin.post(f"{V1}/sessions/check", json=body("new"))
    assert answer.status_code == 503
    assert "the scheduler fails at what is asked for" in answer.text


async def test_nobody_is_said_to_be_stopped_already_who_only_would_be(ready: Cluster) -> None:
    """Somebody else may not hear of a private session by asking, nor how large it is."""
    await run(ready, "hidden", gpu_milli=1000, max_replicas=4, access="private")
    await ready.settle()
    assert (await ready.session("hidden"))["replicas"] == 4
    member = await ready.user("bob")
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["bob"]}))
    found = await ok(member.post(f"{V1}/sessions/check", json=body("new", gpu_milli=2000)))
    assert (found["starting"], found["cause"], found["reason"]) == (
        0,
        "reclaiming",
        "other sessions would be stopped for it, or give up containers; worker1 would be kept for it",
    )
    assert (await ready.session("hidden"))["replicas"] == 4


async def test_who_is_being_stopped_already_is_told_as_to_those_who_wait(ready: Cluster) -> None:
    await run(ready, "first", gpu_milli=4000)
    assert (await wish(ready, "first")).status_code == 202
    found = await check(ready, gpu_milli=2000)
    await ready.submit("real", gpu_milli=2000)
    await ready.manager.loop.run()
    session = await ready.session("real")
    assert (found["cause"], found["reason"]) == (session["cause"], session["reason"])
    assert found["reason"] == "first of team-a is still being stopped; room on worker1 is kept for it"
