"""Time limits that are put off while somebody waits for the places."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from sqlalchemy import event, select, update

from api.auth.policy import UserRole
from api.resources.sessions import service as sessions
from api.tables.projects import Project
from api.tables.sessions import Session
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.api.steps import HOUR, MINUTE, body, delete, run, wait_behind_a_limit, wait_behind_limits
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

EXTEND = f"{V1}/sessions/short/extend?project=team-a"


async def reserved_on(cluster: Cluster, name: str) -> list[str]:
    async with cluster.database.reading() as db:
        found: list[str] | None = await db.scalar(select(Session.reserved_on).where(Session.name == name))
    return found or []


@pytest.fixture
async def manager(ready: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a manager of the project."""
    async with await ready.user("mia") as client:
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"managers": ["mia"]}))
        yield client


async def test_what_started_before_a_reservation_is_not_extended(ready: Cluster, manager: httpx.AsyncClient) -> None:
    await wait_behind_limits(ready)
    error = await refused(manager.post(EXTEND, json={"seconds": 1}), 409)
    assert error["where"] == "seconds"
    assert error["reason"] == "places are reserved on worker1 for a session that waits"
    assert error["hint"] == "try again once that has started, or ask an administrator of the site"


async def test_owners_add_nothing_to_it_either(ready: Cluster) -> None:
    async with await ready.user("alice") as alice:
        limits = {"members": ["alice"], "interactive_limit_s": MINUTE, "interactive_extension_s": HOUR}
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json=limits))
        await wait_behind_a_limit(ready)
        await ok(alice.post(f"{V1}/sessions", json=body("short", interactive=True, gpu_milli=1000)))
        await ready.settle()
        assert (await ready.session("short"))["state"] == "RUNNING"
        assert "reserved" in (await refused(alice.post(EXTEND, json={"seconds": 1}), 409))["reason"]


async def test_nor_is_what_ran_before_somebody_waited(ready: Cluster, manager: httpx.AsyncClient) -> None:
    """Its end is why the places are reserved there: who puts it off again and again would starve who waits."""
    await wait_behind_limits(ready)
    extend = f"{V1}/sessions/long/extend?project=team-a"
    await refused(manager.post(extend, json={"seconds": 1}), 409)


async def test_administrators_of_the_site_extend_it_all_the_same(ready: Cluster) -> None:
    await wait_behind_limits(ready)
    before = await ready.session("short")
    assert (await ok(ready.admin.post(EXTEND, json={"seconds": 1})))["expires_at"] > before["expires_at"]


async def test_administrators_of_a_domain_are_bound_as_managers_are(ready: Cluster) -> None:
    """Who waits may be of another domain."""
    await ok(ready.admin.post(f"{V1}/domains", json={"name": "physics"}))
    async with ready.database.transaction() as db:
        await db.execute(update(Project).values(domain="physics"))
    dora = {"name": "dora", "password": PASSWORD, "role": UserRole.ADMIN, "domain": "physics"}
    await ok(ready.admin.post(f"{V1}/users", json=dora))
    async with ready.client() as client:
        await sign_in(client, "dora")
        await wait_behind_limits(ready)
        await refused(client.post(EXTEND, json={"seconds": 1}), 409)
        await delete(ready, "large")
        await ok(client.post(EXTEND, json={"seconds": 1}))


async def test_it_is_extended_again_once_nobody_waits(ready: Cluster, manager: httpx.AsyncClient) -> None:
    await wait_behind_limits(ready)
    await delete(ready, "large")
    before = await ready.session("short")
    assert (await ok(manager.post(EXTEND, json={"seconds": 1})))["expires_at"] > before["expires_at"]


async def test_other_nodes_are_free_to_be_used_longer(ready: Cluster, manager: httpx.AsyncClient) -> None:
    await ready.add_node("worker2")
    await run(ready, "there", gpu_milli=4000, preemptible=False)
    await wait_behind_limits(ready)
    (place,) = (await ready.session("short"))["containers"]
    assert await reserved_on(ready, "large") == [place["node"]]
    await delete(ready, "there")
    await ready.settle()
    assert (await ready.session("large"))["state"] == "RUNNING"
    await ok(manager.post(EXTEND, json={"seconds": 1}))


async def test_a_start_and_the_reservation_that_binds_it_are_written_at_once(
    ready: Cluster, manager: httpx.AsyncClient
) -> None:
    """Both are decided in one cycle: nobody sees the one that started without what it started before."""
    await wait_behind_a_limit(ready)
    await ready.submit("short", gpu_milli=1000, preemptible=False, limit_s=MINUTE)
    await ready.manager.loop.run()
    assert (await ready.session("short"))["state"] == "SCHEDULED"
    assert await reserved_on(ready, "large") == ["worker1"]
    await refused(manager.post(EXTEND, json={"seconds": 1}), 409)
    await ready.settle()
    assert (await ready.session("short"))["state"] == "RUNNING"
    await refused(manager.post(EXTEND, json={"seconds": 1}), 409)


async def test_another_leader_knows_what_is_reserved(ready: Cluster, manager: httpx.AsyncClient) -> None:
    await wait_behind_limits(ready)
    ready.manager.loop.reservations = None
    await refused(manager.post(EXTEND, json={"seconds": 1}), 409)


async def test_what_starts_or_waits_for_its_project_has_nothing_reserved(ready: Cluster) -> None:
    await wait_behind_limits(ready)
    assert await reserved_on(ready, "large") == ["worker1"]
    await delete(ready, "long")
    await delete(ready, "short")
    await ready.settle()
    assert (await ready.session("large"))["state"] == "RUNNING"
    assert await reserved_on(ready, "large") == []


async def test_what_waits_again_has_nothing_reserved_until_that_is_decided(
    ready: Cluster, manager: httpx.AsyncClient
) -> None:
    """A release that knew nothing of it started the session, and left the reservation in its row."""
    await ready.submit("again", gpu_milli=1000)
    await ready.submit("short", gpu_milli=1000, preemptible=False, limit_s=MINUTE)
    await ready.settle()
    async with ready.database.transaction() as db:
        await db.execute(update(Session).where(Session.name == "again").values(reserved_on=["worker1"]))
    async with ready.database.transaction() as db:
        session = (await db.scalars(select(Session).where(Session.name == "again"))).one()
        assert await sessions.requeue(db, session, "restarted")
    assert await ready.states() == {"again": "PENDING", "short": "RUNNING"}
    assert await reserved_on(ready, "again") == []
    await ok(manager.post(EXTEND, json={"seconds": 1}))


async def test_cycles_that_reserve_the_same_write_nothing(ready: Cluster) -> None:
    await wait_behind_limits(ready)
    written: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith(("UPDATE", "INSERT", "DELETE")):
            written.append(statement)

    ready.manager.loop._token = None
    event.listen(ready.database.engine.sync_engine, "before_cursor_execute", note)
    try:
        await ready.manager.loop.run()
    finally:
        event.remove(ready.database.engine.sync_engine, "before_cursor_execute", note)
    assert written == []
