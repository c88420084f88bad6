"""Dry runs: what would become of a session, before anybody submits it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from api.control import dry_runs
from api.scheduler.planner import Planner
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body, run

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

    def wait(self: Planner, *args: Any) -> Any:
        assert go_on.wait(30)
        return decide(self, *args)

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
