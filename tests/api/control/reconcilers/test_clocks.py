"""Clocks that are set or wrong: the master's loses no node, and no worker's ends a session or makes its user pay."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from starlette.requests import HTTPConnection

from api.clock import now
from api.control.reconcilers.failures import Failures
from api.control.reconcilers.timed import SLACK_S, STALL_S, TimedReconciler
from api.endpoints import nodes as endpoints
from api.endpoints import repeats
from api.endpoints.access import clock_offset_s
from common.protocol import ContainerStatus
from tests.api.cluster import V1, Cluster, SlowClock, ok
from tests.api.steps import listen, lose, pass_time, run

pytestmark = pytest.mark.anyio

HOURS_30 = timedelta(hours=30)


async def node(cluster: Cluster) -> dict[str, object]:
    return dict(await ok(cluster.admin.get(f"{V1}/nodes/worker1")))


async def test_a_step_of_the_master_s_clock_loses_nobody(ready: Cluster) -> None:
    await run(ready)
    await listen(ready)
    for step_s in (20, 3600, -3600):
        pass_time(ready, step_s)
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


async def test_a_node_that_is_silent_is_lost_whatever_the_clock_says(ready: Cluster) -> None:
    pass_time(ready, -3600)
    await lose(ready)


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


@pytest.mark.parametrize("told", ["nan", "inf", "soon", "1e400", ""])
def test_what_is_no_time_is_none(told: str) -> None:
    connection = HTTPConnection({"type": "http", "headers": [(b"x-penstock-time", told.encode())]})
    assert clock_offset_s(connection, now()) == 0
