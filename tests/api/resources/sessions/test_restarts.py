"""Restarts: a session goes back to the queue where it stands, and what put it there stays known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import delete, run

pytestmark = pytest.mark.anyio


def restart(cluster: Cluster, client: Any = None) -> Any:
    return (client or cluster.admin).post(f"{V1}/sessions/demo/restart", params={"project": "team-a"})


async def test_a_running_session_starts_again_as_it_was_asked_for(ready: Cluster) -> None:
    before = await run(ready, environment={"A": "1"}, pvcs=[{"name": "data", "target": "/data"}])
    asked = ready.engine.specs[ready.container(before)[1]]
    answer = await ok(restart(ready))
    assert (answer["state"], answer["reason"]) == ("TERMINATING", "restarted by admin")
    await ready.settle()
    after = await ready.session("demo")
    assert (after["id"], after["state"], after["attempt"]) == (before["id"], "RUNNING", 1)
    again = ready.engine.specs[f"session-{before['id']}-1-0"]
    assert again == asked.model_copy(update={"id": again.id})
    assert list(ready.engine.containers) == [("worker1", again.id)]
    assert after["interrupted"] == "restarted by admin"
    assert after["interrupted_at"] >= before["started_at"]


async def test_a_restart_may_be_asked_for_twice(ready: Cluster) -> None:
    await run(ready)
    first = await ok(restart(ready))
    assert await ok(restart(ready)) == first


async def test_who_deletes_it_meanwhile_ends_it(ready: Cluster) -> None:
    await run(ready)
    await ok(restart(ready))
    await delete(ready)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "TERMINATED"


async def test_what_has_ended_or_waits_is_not_restarted(ready: Cluster) -> None:
    await ready.submit("demo", replicas=4, gpu_milli=1000)
    error = await refused(restart(ready), 409)
    assert error["reason"].startswith("session demo is PENDING")
    await ready.settle()
    await delete(ready)
    assert "TERMINATING" in (await refused(restart(ready), 409))["reason"]
    await ready.settle()
    error = await refused(restart(ready), 409)
    assert error["reason"] == "session demo is TERMINATED"
    assert error["hint"] == "submit it again"


async def test_a_project_that_may_not_start_it_again_keeps_it_running(ready: Cluster) -> None:
    await run(ready, gpu_milli=1500)
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 1000, "over_quota": False}))
    error = await refused(restart(ready), 409)
    assert "team-a may hold 1 GPU, and 1.5 GPU are asked for" in error["reason"]
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_restarts_are_for_the_owner_and_the_managers(ready: Cluster) -> None:
    await run(ready)
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        assert "belongs to admin" in (await refused(restart(ready, alice), 403))["reason"]
