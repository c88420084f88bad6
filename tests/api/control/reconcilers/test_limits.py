"""Time limits of interactive sessions, and periods of projects, by a clock that the tests set."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from api.clock import now
from api.resources.sessions import service
from api.tables.sessions import State
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import pass_time, run

pytestmark = pytest.mark.anyio

HOUR = 3600


async def limit(cluster: Cluster, **changes: Any) -> None:
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json=changes))


async def test_the_time_counts_from_when_it_runs(ready: Cluster) -> None:
    await limit(ready, interactive_limit_s=HOUR)
    session = await run(ready, interactive=True)
    ends = datetime.fromisoformat(session["expires_at"])
    assert ends - datetime.fromisoformat(session["started_at"]) == timedelta(hours=1)
    assert (await run(ready, "training"))["expires_at"] is None, "trainings end by themselves"


async def test_users_limit_the_time_of_any_session(ready: Cluster) -> None:
    session = await run(ready, limit_s=HOUR)
    assert session["limit_s"] == HOUR
    ends = datetime.fromisoformat(session["expires_at"])
    assert ends - datetime.fromisoformat(session["started_at"]) == timedelta(hours=1)
    pass_time(ready, HOUR + 1)
    await ready.settle()
    session = await ready.session("demo")
    assert session["state"] == "TERMINATED"
    assert session["reason"].startswith("its time limit was reached at ")


@pytest.mark.parametrize(("asked", "given"), [(HOUR, HOUR), (3 * HOUR, 2 * HOUR)])
async def test_of_two_limits_the_shorter_one_counts(ready: Cluster, asked: int, given: int) -> None:
    await limit(ready, interactive_limit_s=2 * HOUR)
    session = await run(ready, interactive=True, limit_s=asked)
    ends = datetime.fromisoformat(session["expires_at"])
    assert ends - datetime.fromisoformat(session["started_at"]) == timedelta(seconds=given)


async def test_a_warning_comes_before_the_end(ready: Cluster) -> None:
    await limit(ready, interactive_limit_s=HOUR)
    await run(ready, interactive=True)
    pass_time(ready, HOUR - 310)
    await ready.settle()
    assert (await ready.session("demo"))["reason"] == ""
    pass_time(ready, HOUR - 290)
    await ready.settle()
    session = await ready.session("demo")
    assert session["state"] == "RUNNING"
    assert session["reason"].startswith("its time limit ends it at ")
    await ready.heartbeat()
    await ready.settle()
    assert (await ready.session("demo"))["reason"] == session["reason"], "heartbeats do not wipe it away"

    pass_time(ready, HOUR + 1)
    await ready.settle()
    session = await ready.session("demo")
    assert session["state"] == "TERMINATED"
    assert session["reason"].startswith("its time limit was reached at ")
    assert ready.engine.containers == {}


@pytest.mark.parametrize(
    ("left", "help_"),
    [(0, "save your work, or ask a manager of team-a to extend it"), (1, "save your work, or extend it")],
)
async def test_a_warning_tells_of_an_extension_who_may_make_one(ready: Cluster, left: int, help_: str) -> None:
    await limit(ready, interactive_limit_s=HOUR, interactive_extension_s=left)
    await run(ready, interactive=True)
    pass_time(ready, HOUR - 290)
    await ready.settle()
    assert (await ready.session("demo"))["reason"].endswith(f"; {help_}")


async def test_an_extension_takes_the_warning_away_and_another_comes(ready: Cluster) -> None:
    await limit(ready, interactive_limit_s=HOUR)
    await run(ready, interactive=True)
    pass_time(ready, HOUR - 60)
    await ready.settle()
    async with ready.database.transaction() as db:
        (session,) = await service.in_states(db, [State.RUNNING])
        assert session.expires_at
        await service.change(db, session, expires_at=session.expires_at + timedelta(hours=1))
    await ready.settle()
    assert (await ready.session("demo"))["reason"] == ""
    pass_time(ready, 2 * HOUR - 60)
    await ready.settle()
    assert (await ready.session("demo"))["reason"].startswith("its time limit ends it at ")


async def end_period(cluster: Cluster, **changes: Any) -> None:
    period = {"starts_at": (now() - timedelta(days=2)).isoformat(), "ends_at": (now() + timedelta(days=1)).isoformat()}
    await limit(cluster, period=period, **changes)


async def test_when_a_period_ends_what_runs_is_stopped(ready: Cluster) -> None:
    await end_period(ready)
    await run(ready)
    pass_time(ready, 23 * HOUR)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"
    pass_time(ready, 25 * HOUR)
    await ready.settle()
    session = await ready.session("demo")
    assert session["state"] == "TERMINATED"
    assert session["reason"].startswith("the period of team-a ended at ")
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["used_milli"] == 0


async def test_or_may_finish(ready: Cluster) -> None:
    await end_period(ready, on_expiry="finish")
    await run(ready)
    pass_time(ready, 25 * HOUR)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_the_time_in_the_queue_does_not_count(ready: Cluster) -> None:
    await limit(ready, interactive_limit_s=HOUR)
    await run(ready, interactive=True)
    async with ready.database.transaction() as db:
        session = (await service.in_states(db, [State.RUNNING]))[0]
        assert await service.requeue(db, session, "reclaimed")
    assert (await ready.session("demo"))["expires_at"] is None
