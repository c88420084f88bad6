"""Heartbeats in batches: what is no news costs one statement, and nothing is missed by that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncSession
from structlog.testing import capture_logs

from api.clock import now
from api.control.reconcilers import observe
from api.resources.nodes import service as nodes
from api.resources.nodes.heartbeats import HeardHeartbeat
from api.resources.sessions import changes
from api.resources.sessions.changes import Change
from common.protocol import ContainerStatus
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import run

pytestmark = pytest.mark.anyio
Since = Callable[[str], datetime]


async def seen(cluster: Cluster, name: str) -> datetime:
    return datetime.fromisoformat((await ok(cluster.admin.get(f"{V1}/nodes/{name}")))["last_seen"])


async def test_a_node_that_only_lives_costs_one_statement_for_all(cluster: Cluster) -> None:
    names = [f"worker{number}" for number in range(20)]
    for name in names:
        await cluster.heartbeat(name, 1)
    await cluster.settle()
    before = await seen(cluster, "worker7")
    for name in names:
        await cluster.heartbeat(name, 1)
    statements: list[str] = []
    engine = cluster.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", lambda _c, _u, statement, *_: statements.append(statement))
    await cluster.manager.observe()
    assert len([text for text in statements if not text.startswith("BEGIN")]) == 1
    assert await seen(cluster, "worker7") > before


async def test_a_deleted_node_comes_back_though_its_agent_says_nothing_new(cluster: Cluster) -> None:
    await cluster.add_node()
    await ok(cluster.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}))
    await ok(cluster.admin.delete(f"{V1}/nodes/worker1"))
    await cluster.heartbeat()
    await cluster.settle()
    (node,) = await ok(cluster.admin.get(f"{V1}/nodes"))
    assert (node["name"], node["mode"]) == ("worker1", "active")


async def test_a_node_may_report_a_hundred_containers_of_sixteen_gpus(cluster: Cluster) -> None:
    await cluster.add_node("worker1", 16)
    await cluster.add_image()
    await cluster.add_project("team-a", 16_000)
    for name, count in (("a", 50), ("b", 51)):
        body = {"name": name, "project": "team-a", "image": "python", "gpu_milli": 100, "count": count}
        await ok(cluster.admin.post(f"{V1}/sessions/batch", json=body))
    await cluster.settle()
    states = list((await cluster.states()).values())
    assert (states.count("RUNNING"), states.count("PENDING")) == (100, 1), "the 101st waits"
    await cluster.heartbeat("worker1", 16)
    await cluster.settle()
    assert (await ok(cluster.admin.get(f"{V1}/nodes/worker1")))["sessions"] == 100


@pytest.mark.parametrize(
    "outage", [OperationalError("SELECT", {}, OSError()), PoolTimeoutError("no connection is free")]
)
async def test_no_heartbeat_is_lost_by_an_outage_of_the_database(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, outage: Exception
) -> None:
    """Also where it begins in the middle, and while a heartbeat is looked for that the database cannot take."""
    await cluster.add_node()
    await cluster.heartbeat(gpus=2)
    record, answers = nodes.record, iter([DBAPIError("INSERT", {}, ValueError()), outage])

    async def failing(db: AsyncSession, reports: Sequence[HeardHeartbeat], known_since: Since) -> Any:
        for error in answers:
            raise error
        return await record(db, reports, known_since)

    monkeypatch.setattr(nodes, "record", failing)
    with pytest.raises(type(outage)):
        await cluster.manager.observe()
    await cluster.manager.observe()
    assert len((await ok(cluster.admin.get(f"{V1}/nodes/worker1")))["gpus"]) == 2


@pytest.mark.parametrize("odd", [KeyError("what nobody expected"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no")])
async def test_a_heartbeat_that_cannot_be_written_takes_no_other_with_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, odd: Exception
) -> None:
    for name in ("worker1", "worker2", "worker3"):
        await cluster.add_node(name, 4)
    for name in ("worker1", "worker2", "worker3"):
        await cluster.heartbeat(name, 2)
    record = nodes.record

    async def failing(db: AsyncSession, reports: Sequence[HeardHeartbeat], known_since: Since) -> Any:
        if any(report.heartbeat.name == "worker2" for report in reports):
            raise odd
        return await record(db, reports, known_since)

    monkeypatch.setattr(nodes, "record", failing)
    with capture_logs() as lines:
        await cluster.manager.observe()
    told = [("heartbeats are looked at one by one", None), ("heartbeat refused", "worker2")]
    assert [(line["event"], line.get("node")) for line in lines] == told
    rows = await ok(cluster.admin.get(f"{V1}/nodes"))
    assert [(row["name"], len(row["gpus"])) for row in rows] == [("worker1", 2), ("worker2", 4), ("worker3", 2)]
    monkeypatch.undo()
    await cluster.heartbeat("worker2", 2)
    await cluster.manager.observe()
    assert len((await ok(cluster.admin.get(f"{V1}/nodes/worker2")))["gpus"]) == 2, "the next one is looked at in full"


async def test_signs_of_life_that_cannot_be_noted_together_are_noted_one_by_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("worker1", "worker2"):
        await cluster.add_node(name)
    before = await seen(cluster, "worker2")
    for name in ("worker1", "worker2"):
        await cluster.heartbeat(name)

    async def failing(db: AsyncSession, heard: Mapping[str, datetime]) -> set[str]:
        raise KeyError("what nobody expected")

    monkeypatch.setattr(nodes, "note_alive", failing)
    await cluster.manager.observe()
    assert await seen(cluster, "worker2") > before


async def test_what_is_written_already_is_not_written_again_after_an_outage(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "CHUNK", 1)
    for name in ("worker1", "worker2", "worker3"):
        await cluster.heartbeat(name)
    record, written = nodes.record, list[str]()

    async def failing(db: AsyncSession, reports: Sequence[HeardHeartbeat], known_since: Since) -> Any:
        written.extend(report.heartbeat.name for report in reports)
        if len(written) == 2:
            raise OperationalError("SELECT", {}, OSError())
        return await record(db, reports, known_since)

    monkeypatch.setattr(nodes, "record", failing)
    with pytest.raises(OperationalError):
        await cluster.manager.observe()
    await cluster.manager.observe()
    assert written == ["worker1", "worker2", "worker2", "worker3"]


async def test_after_a_pause_what_came_together_is_written_together(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    note_alive = nodes.note_alive

    async def counted(db: AsyncSession, heard: Mapping[str, datetime]) -> set[str]:
        written.append(len(heard))
        return await note_alive(db, heard)

    names = [f"worker{number}" for number in range(1, 41)]
    for name in names:
        await cluster.add_node(name, 0)
    monkeypatch.setattr(nodes, "note_alive", counted)
    began = now()
    for number, name in enumerate(names):
        assert cluster.app.state.heartbeats.repeat(name, 10_000, began + timedelta(seconds=number / 8))
    await cluster.manager.observe()
    assert written == [40], "one statement, not one for each node"
    assert await seen(cluster, "worker9") == began + timedelta(seconds=1), "each at its own time"


async def test_not_all_nodes_are_looked_at_again_at_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    record = nodes.record

    async def counted(db: AsyncSession, reports: Sequence[HeardHeartbeat], known_since: Since) -> Any:
        looked.append(len(reports))
        return await record(db, reports, known_since)

    names = [f"worker{number}" for number in range(1, 6)]
    for name in names:
        await cluster.add_node(name, 0)
    monkeypatch.setattr(nodes, "record", counted)
    monkeypatch.setattr(observe, "LOOK_AGAIN_S", -1)
    monkeypatch.setattr(observe, "LOOKS_AGAIN", 2)
    for name in names:
        assert cluster.app.state.heartbeats.repeat(name, 10_000, now())
    await cluster.manager.observe()
    assert looked == [2]


async def test_what_somebody_else_was_faster_to_change_is_looked_at_again_though_nothing_is_new(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(ready)
    [(key, state)] = ready.engine.containers.items()
    ready.engine.containers[key] = state.model_copy(update={"status": ContainerStatus.EXITED, "exit_code": 0})
    write, tries = changes.write, 0

    async def slower(db: AsyncSession, found: Sequence[Change]) -> set[UUID]:
        nonlocal tries
        tries += 1
        return await write(db, found) if tries > 1 else set()

    monkeypatch.setattr(changes, "write", slower)
    states = []
    for _ in range(2):
        await ready.heartbeat()
        await ready.manager.observe()
        states.append((await ready.session("demo"))["state"])
    assert states == ["RUNNING", "TERMINATING"]
