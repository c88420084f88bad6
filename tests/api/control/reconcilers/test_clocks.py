"""Clocks that are set or wrong: the master's loses no node, and no worker's ends a session or makes its user pay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from api.clock import now
from api.control.reconcilers.failures import RETRY_S, Failures
from api.control.reconcilers.observe import MISSING_LIMIT
from api.control.reconcilers.timed import SLACK_S, STALL_S, TimedReconciler
from api.database import Begin, Leadership
from api.endpoints import nodes as endpoints
from api.endpoints import repeats
from api.endpoints.access import clock_offset_s
from api.engine.base import UnreachableError
from api.resources.nodes import heartbeats
from api.tables.images import Image, Status
from common.errors import UnavailableError
from common.protocol import ContainerStatus
from tests.api.cluster import V1, Cluster, SlowClock, ok
from tests.api.steps import delete, listen, lose, once, pass_time, run, set_clock

pytestmark = pytest.mark.anyio

HOUR = 3600
HOURS_30 = timedelta(hours=30)


async def node(cluster: Cluster) -> dict[str, object]:
    return dict(await ok(cluster.admin.get(f"{V1}/nodes/worker1")))


async def test_a_step_of_the_master_s_clock_loses_nobody(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(ready)
    await listen(ready)
    for step_s in (20, 3600, -3600):
        set_clock(monkeypatch, step_s)
        ready.clock.passed += 1
        await ready.settle()
        assert (await node(ready))["state"] == "ready"
        session = await ready.session("demo")
        assert (session["state"], session["attempt"]) == ("RUNNING", 0)


async def test_a_node_that_reports_lives_though_the_clock_went_back(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await listen(ready)
    for module in (endpoints, repeats):
        monkeypatch.setattr(module, "now", lambda: now() - timedelta(hours=1))
    for _ in range(6):
        await ready.heartbeat()
        ready.clock.passed += STALL_S
        await ready.settle()
    assert (await node(ready))["state"] == "ready"


async def test_who_leads_anew_gives_every_node_all_of_its_time(ready: Cluster) -> None:
    """Whether the API has started again, or waited for hours while another process led."""
    clock = SlowClock()
    successor = TimedReconciler(ready.database, ready.settings, clock, Failures())
    clock.passed += 7200
    states = []
    while clock.passed < 7200 + ready.settings.node_lost_s + SLACK_S + STALL_S:
        await successor.apply()
        states.append((clock.passed - 7200, (await node(ready))["state"]))
        clock.passed += STALL_S
    assert [state for passed, state in states if passed < ready.settings.node_lost_s + SLACK_S] == ["ready"] * 5
    assert states[-1][1] == "lost"


async def test_a_node_that_is_silent_is_lost_whatever_the_clock_says(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, -3600)
    await lose(ready)


STEPS = pytest.mark.parametrize("step_s", [HOUR, -HOUR])


@STEPS
async def test_a_step_ends_no_session_by_its_time_limit_and_keeps_none(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    """What is shown as its end moves with the clock, and so does what accounting counts from."""
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"interactive_limit_s": HOUR}))
    before = await run(ready, interactive=True)
    set_clock(monkeypatch, step_s)
    await ready.settle()
    session = await ready.session("demo")
    assert session["state"] == "RUNNING"
    for name in ("scheduled_at", "started_at", "expires_at"):
        moved = datetime.fromisoformat(session[name]) - datetime.fromisoformat(before[name])
        assert abs(moved.total_seconds() - step_s) < 5, name
    period = {"starts_at": (now() - timedelta(days=1)).isoformat()}
    assert (await ok(ready.admin.get(f"{V1}/accounting", params=period)))["total"]["session_seconds"] < 60
    pass_time(ready, HOUR - 60)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"
    pass_time(ready, HOUR + 10)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "TERMINATED"


@STEPS
async def test_a_container_that_vanishes_after_a_step_is_missed(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    await run(ready)
    await listen(ready)
    set_clock(monkeypatch, step_s)
    ready.clock.passed += 1
    await ready.settle()
    ready.engine.containers.clear()
    for _ in range(MISSING_LIMIT):
        await ready.heartbeat(containers=[])
        await ready.manager.observe()
    assert (await ready.session("demo"))["state"] != "RUNNING"


@STEPS
@pytest.mark.parametrize(
    ("status", "limit_s"), [(ContainerStatus.PULLING, HOUR), (ContainerStatus.CREATING, 300), (None, 60)]
)
@pytest.mark.usefixtures("impatient")
async def test_a_step_neither_reaches_a_deadline_nor_puts_it_off(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, step_s: int, status: ContainerStatus | None, limit_s: int
) -> None:
    if status is None:
        ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=True)
    else:
        ready.engine.first_status = status
    await ready.submit("demo")
    await once(ready)
    await once(ready)
    set_clock(monkeypatch, step_s)
    await once(ready)
    pass_time(ready, limit_s - 5)
    await once(ready)
    assert ((session := await ready.session("demo"))["state"], session["attempt"]) == ("PREPARING", 0)
    pass_time(ready, limit_s + 5)
    await once(ready)
    assert (await ready.session("demo"))["state"] != "PREPARING"


@STEPS
async def test_a_step_neither_gives_a_lost_node_up_nor_keeps_it(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    await run(ready, interactive=True)
    await lose(ready)
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
    await delete(ready)
    set_clock(monkeypatch, step_s)
    await listen(ready, for_s=ready.settings.node_gone_s - 60, silent="worker1")
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "TERMINATING"
    await listen(ready, for_s=60 + RETRY_S[-1], silent="worker1")
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "TERMINATED"


@STEPS
async def test_a_step_moves_a_drain_s_end_and_the_pull_of_an_image(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    await run(ready, interactive=True)
    body = {"mode": "draining", "drain_timeout_s": 600}
    await ok(ready.admin.patch(f"{V1}/nodes/worker1/mode", json=body))
    async with ready.database.transaction() as db:
        await db.execute(update(Image).values(status=Status.PULLING, since=now()))
    await ready.settle()
    set_clock(monkeypatch, step_s)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"
    async with ready.database.reading() as db:
        since = (await db.scalars(select(Image.since))).one()
    assert abs((now() - since).total_seconds()) < 60
    pass_time(ready, 601)
    await ready.settle()
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "TERMINATED"


async def test_who_leads_anew_moves_nothing_by_a_step_of_before(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever led until then has moved it."""
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"interactive_limit_s": HOUR}))
    session = await run(ready, interactive=True)
    successor = TimedReconciler(ready.database, ready.settings, SlowClock(), Failures())
    set_clock(monkeypatch, 60)
    successor.begin()
    await successor.apply()
    assert (await ready.session("demo"))["expires_at"] == session["expires_at"]


async def test_who_has_waited_to_lead_moves_nothing_by_a_step_of_that_time(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood beside a leader that has followed the clock, and takes over when that goes."""
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"interactive_limit_s": HOUR}))
    session = await run(ready, interactive=True)
    asked, leading = asyncio.Event(), asyncio.Event()
    renew, reconcile = Leadership.renew, ready.manager.reconcile

    async def noted(leadership: Leadership) -> bool:
        held = await renew(leadership)
        asked.set()
        return held

    async def looked(*transactions: Begin | None) -> bool:
        done = await reconcile(*transactions)
        leading.set()
        return done

    monkeypatch.setattr(Leadership, "renew", noted)
    monkeypatch.setattr(ready.manager, "reconcile", looked)
    async with asyncio.timeout(60):
        async with ready.database.leadership() as leader:
            assert await renew(leader)
            waiting = asyncio.create_task(ready.manager.run())
            await asked.wait()
            set_clock(monkeypatch, -2 * HOUR)
        await leading.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    after = await ready.session("demo")
    assert (after["state"], after["expires_at"]) == ("RUNNING", session["expires_at"])


async def test_who_leads_no_more_moves_nothing(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successor follows the clock, while it itself has stood still and does not know."""
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"interactive_limit_s": HOUR}))
    session = await run(ready, interactive=True)

    @asynccontextmanager
    async def refused() -> AsyncIterator[AsyncSession]:
        async with ready.database.transaction() as db:
            yield db
            raise UnavailableError("the connection that held the leader's lock is lost", hint="start PostgreSQL")

    set_clock(monkeypatch, 60)
    await ready.manager.reconcile(refused)
    assert (await ready.session("demo"))["expires_at"] == session["expires_at"]


@pytest.mark.parametrize("off", [-HOURS_30, HOURS_30])
async def test_a_worker_s_clock_neither_ends_a_notebook_nor_is_paid_for(ready: Cluster, off: timedelta) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"interactive_limit_s": 3600}))
    ready.engine.first_status = ContainerStatus.CREATING
    await ready.submit("demo", interactive=True)
    await ready.settle()
    session = await ready.session("demo")
    ready.change_container(session, status=ContainerStatus.RUNNING, started_at=now() + off)
    await ready.heartbeat()
    await ready.settle()
    session = await ready.session("demo")
    assert session["state"] == "RUNNING"
    began = datetime.fromisoformat(session["started_at"])
    assert now() - timedelta(seconds=60) < began <= now()
    assert datetime.fromisoformat(session["expires_at"]) - began == timedelta(hours=1)
    assert (await ok(ready.admin.get(f"{V1}/accounting")))["total"]["session_seconds"] < 60


async def test_what_ran_while_the_api_was_away_counts_from_when_it_began(ready: Cluster) -> None:
    """Told by a worker whose clock is four seconds ahead."""
    ready.engine.first_status = ContainerStatus.CREATING
    await ready.submit("demo")
    await ready.settle()
    session = await ready.session("demo")
    began = datetime.fromisoformat(session["scheduled_at"]) + timedelta(milliseconds=10)
    moved = began + timedelta(seconds=4)
    ready.change_container(session, status=ContainerStatus.RUNNING, started_at=moved)
    await ready.heartbeat(ahead_s=4.0)
    await ready.settle()
    started = datetime.fromisoformat((await ready.session("demo"))["started_at"])
    assert abs(started - began) < timedelta(seconds=1)


async def test_a_node_whose_clock_is_wrong_says_so_and_takes_nothing_new(ready: Cluster) -> None:
    await run(ready, "before")
    for times in (1, 2):
        await ready.heartbeat(ahead_s=-108_000)
        await ready.settle()
        assert (await node(ready))["message"] == "", f"late {times} times"
    await ready.heartbeat(ahead_s=-108_000)
    await ready.settle()
    told = await node(ready)
    assert str(told["message"]).startswith("its clock is 108000 s behind the API's: it takes nothing new")
    assert (told["state"], told["clock_offset_s"]) == ("ready", -108_000)
    await ready.submit("next")
    await ready.settle()
    assert await ready.states() == {"before": "RUNNING", "next": "PENDING"}
    await ready.heartbeat(ahead_s=0.2)
    await ready.settle()
    assert ((await node(ready))["message"], (await node(ready))["clock_offset_s"]) == ("", 0)
    assert (await ready.session("next"))["state"] == "RUNNING"


async def test_where_all_clocks_are_off_alike_the_apis_own_is_named(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "JUDGED_FOR", timedelta(0))
    await ready.add_node("worker2")

    async def told(*ahead_s: float) -> list[str]:
        for _ in range(heartbeats.TIMES_WRONG + 1):
            for name, off_s in zip(("worker1", "worker2"), ahead_s, strict=True):
                await ready.heartbeat(name, ahead_s=off_s)
        await ready.settle()
        return [str(node["message"]) for node in await ok(ready.admin.get(f"{V1}/nodes"))]

    ours = "the API's clock is 600 s behind those of all nodes: they take nothing new; look at the master's chrony"
    assert await told(600, 600) == [ours, ours]
    assert (await node(ready))["clock_offset_s"] == 600, "all else is as it was"
    assert await told(600, 0) == [
        "its clock is 600 s ahead of the API's: it takes nothing new; look at its chrony service",
        "",
    ]
    apart = await told(600, -600)
    assert [message.startswith("its clock is 600 s") for message in apart] == [True, True], "not alike"
    assert await told(0, 0) == ["", ""]


@pytest.mark.parametrize("told", ["nan", "inf", "soon", "1e400", ""])
def test_what_is_no_time_is_none(told: str) -> None:
    connection = HTTPConnection({"type": "http", "headers": [(b"x-penstock-time", told.encode())]})
    assert clock_offset_s(connection, now()) == 0
