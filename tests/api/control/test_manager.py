"""How many sessions are operated on at once, and who waits for whom."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import select, update
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from api.control import manager as managing
from api.database import Leadership
from api.resources.sessions import service
from api.tables.sessions import Session
from common import request_id
from tests.api.cluster import V1, Cluster, ok
from tests.api.resources.audit.log import lines
from tests.api.steps import delete, run

pytestmark = pytest.mark.anyio


async def test_stops_that_hang_keep_nobody_from_starting(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managing, "MAX_STOPS", 1)
    monkeypatch.setattr(managing, "MAX_STARTS", 1)
    for name in ("one", "two"):
        await run(ready, name)
    terminate, goes_on, asked = ready.engine.terminate, asyncio.Event(), list[str]()

    async def hanging(agent: Any, container_id: str, grace_s: int) -> None:
        asked.append(container_id)
        await goes_on.wait()
        await terminate(agent, container_id, grace_s)

    monkeypatch.setattr(ready.engine, "terminate", hanging)
    for name in ("one", "two"):
        await delete(ready, name)
    await ready.submit("three")
    await ready.submit("four")
    async with asyncio.timeout(60):
        while (await ready.states()) != dict.fromkeys(("one", "two"), "TERMINATING") | dict.fromkeys(
            ("three", "four"), "RUNNING"
        ):
            await ready.manager.reconcile()
            await asyncio.sleep(0.01)
    assert len(asked) == 1, "the other one waits for its turn"
    goes_on.set()
    await ready.settle()
    assert (await ready.states())["two"] == "TERMINATED"


async def test_changes_of_shares_that_hang_keep_nobody_from_starting(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managing, "MAX_CHANGES", 1)
    monkeypatch.setattr(managing, "MAX_STARTS", 1)
    for name in ("one", "two"):
        await run(ready, name)
    change, goes_on, asked = ready.engine.resize, asyncio.Event(), list[str]()

    async def hanging(agent: Any, container_id: str, shares: Any) -> Any:
        asked.append(container_id)
        await goes_on.wait()
        return await change(agent, container_id, shares)

    monkeypatch.setattr(ready.engine, "resize", hanging)
    for name in ("one", "two"):
        await ok(ready.admin.patch(f"{V1}/sessions/{name}", params={"project": "team-a"}, json={"gpu_milli": 250}))
    await ready.manager.reconcile()
    await ready.submit("three")
    async with asyncio.timeout(60):
        while (await ready.states())["three"] != "RUNNING":
            await ready.manager.reconcile()
            await asyncio.sleep(0.01)
    assert len(asked) == 1, "the other one waits for its turn"
    goes_on.set()
    await ready.settle()
    assert [(await ready.session(name))["gpu_milli"] for name in ("one", "two")] == [250, 250]


async def test_it_ends_when_it_is_told_to_though_a_cancellation_got_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Python 3.12 `asyncio.wait_for` loses one that comes with what it waits for."""
    asked = asyncio.Event()

    async def deaf(_leadership: Leadership) -> bool:
        lost = () if asked.is_set() else (asyncio.CancelledError,)
        asked.set()
        with suppress(*lost):
            await asyncio.sleep(3600)
        return False

    monkeypatch.setattr(Leadership, "renew", deaf)
    running = asyncio.create_task(cluster.manager.run())
    await asked.wait()
    running.cancel()
    await asyncio.wait([running], timeout=20)
    assert running.cancelled()


def launched_by(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the ids of the requests of launches, which grow with each one."""
    launch, asked = cluster.engine.launch, list[str]()

    async def noted(agent: Any, spec: Any) -> Any:
        asked.append(request_id.current())
        return await launch(agent, spec)

    monkeypatch.setattr(cluster.engine, "launch", noted)
    return asked


async def test_the_log_tells_a_session_from_who_asked_for_it_to_its_agents(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the request, then by the session: each launch has the id of who asked for it, however late it is."""
    asked = launched_by(ready, monkeypatch)
    with capture_logs(processors=[merge_contextvars]) as lines:
        session = await run(ready, "one")
        restart = f"{V1}/sessions/one/restart"
        restarted = await ready.admin.post(restart, params={"project": "team-a"})
        await ready.settle()
        await delete(ready, "one")
        await ready.settle()
    [submitted] = [line for line in lines if line["event"] == "submitted"]
    assert (submitted["caller"], submitted["session_id"]) == ("admin", session["id"])
    assert asked == [submitted["request_id"], restarted.headers["X-Request-Id"]]
    ended = [line for line in lines if line["event"] == "ended"]
    assert {line["session_id"] for line in ended} == {session["id"]}
    own = {line["request_id"] for line in ended} - {"", *asked}
    assert len(own) == len(ended) == 2, "what the site does of itself has ids of its own"


async def test_a_session_that_waits_again_is_launched_by_the_request_that_asked_for_it(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of an earlier release, which did not keep that: its launch has an id of its own."""
    asked = launched_by(ready, monkeypatch)
    body = {"name": "one", "project": "team-a", "image": "python", "gpu_milli": 500, "kind": "training"}
    submitted = await ready.admin.post(f"{V1}/sessions", json=body)
    await ready.settle()
    async with ready.database.transaction() as db:
        session = (await db.scalars(select(Session))).one()
        assert await service.reclaim(db, session.id, session.revision, "reclaimed")
    await ready.settle()
    assert asked == [submitted.headers["X-Request-Id"]] * 2
    async with ready.database.transaction() as db:
        await db.execute(update(Session).values(request_id=""))
        session = (await db.scalars(select(Session))).one()
        assert await service.reclaim(db, session.id, session.revision, "reclaimed")
    await ready.settle()
    [later] = asked[2:]
    assert later not in ("", asked[0])


async def test_a_log_that_is_written_asks_for_no_other_look(audited: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await audited.settle()
    await audited.add_project("vision")
    woken: list[str] = []
    monkeypatch.setattr(audited.manager, "wake", lambda: woken.append("woken"))
    await audited.settle()
    assert woken == []
    assert [line["object"] for line in await lines(audited, action="project_create")] == ["projects/vision"]
