"""Events: each state that a session came to stands there with why, written with the change itself."""

from __future__ import annotations

from typing import Any

import pytest

from api.resources.sessions import service
from api.tables.sessions import State
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import delete, run

pytestmark = pytest.mark.anyio


async def events(cluster: Cluster, name: str = "demo") -> list[dict[str, Any]]:
    found = await ok(cluster.admin.get(f"{V1}/sessions/{name}/events", params={"project": "team-a"}))
    return list(reversed(found))


async def test_what_became_of_a_session_is_told_in_order(ready: Cluster) -> None:
    session = await run(ready)
    ready.exit_container(session, 3)
    await ready.heartbeat()
    await ready.settle()
    found = await events(ready)
    states = [event["state"] for event in found]
    assert states[:4] == ["PENDING", "SCHEDULED", "PREPARING", "RUNNING"]
    assert states[-1] == "FAILED"
    assert found[0]["reason"] == "waits for the scheduler"
    assert (found[-1]["exit_code"], found[-1]["reason"]) == (3, (await ready.session("demo"))["reason"])
    assert [event["at"] for event in found] == sorted(event["at"] for event in found)


async def test_an_attempt_is_told_apart_from_the_one_before(ready: Cluster) -> None:
    await run(ready)
    await ok(ready.admin.post(f"{V1}/sessions/demo/restart", params={"project": "team-a"}))
    await ready.settle()
    found = await events(ready)
    assert {event["attempt"] for event in found} == {0, 1}
    assert [event["state"] for event in found if event["attempt"] == 1][:2] == ["PENDING", "SCHEDULED"]


async def test_what_is_undone_leaves_no_event_and_the_last_ones_may_be_asked_for(ready: Cluster) -> None:
    await run(ready)
    before = await events(ready)
    async with ready.database.transaction() as db:
        (session,) = await service.in_states(db, [State.RUNNING])
        assert await service.change(db, session, state=State.TERMINATING, final_state=State.FAILED)
        await db.rollback()
    assert await events(ready) == before
    await delete(ready)
    params = {"project": "team-a", "limit": "1"}
    (last,) = await ok(ready.admin.get(f"{V1}/sessions/demo/events", params=params))
    assert (last["state"], last["reason"]) == ("TERMINATING", "deleted")


async def test_changes_within_a_state_are_no_events(ready: Cluster) -> None:
    await run(ready)
    before = await events(ready)
    await ok(ready.admin.patch(f"{V1}/sessions/demo", params={"project": "team-a"}, json={"access": "private"}))
    assert await events(ready) == before
