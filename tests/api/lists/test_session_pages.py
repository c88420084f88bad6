"""Lists of sessions: who sees what, filters, pages, and answers that did not change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import event, select, update

from api.lists import session_pages
from api.tables.sessions import Session
from tests import history
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body, run

pytestmark = pytest.mark.anyio


async def names(client: object, **query: object) -> list[str]:
    return [row["name"] for row in await ok(client.get(f"{V1}/sessions", params=query))]  # type: ignore[attr-defined]


async def test_a_list_shows_what_one_session_shows_but_what_may_be_long(ready: Cluster) -> None:
    words: dict[str, Any] = {"command": ["sleep"], "args": ["60"]}
    await run(ready, "gang", replicas=2, ports=[80], environment={"A": "1"}, **words)
    (listed,) = await ok(ready.admin.get(f"{V1}/sessions"))
    alone = {**words, "environment": ["A"], "mounts": [], "interrupted": "", "interrupted_at": None, "not_grown": ""}
    assert listed | alone == await ready.session("gang")
    assert not listed.keys() & alone
    (submitted,) = await ok(ready.admin.post(f"{V1}/sessions/batch", json=body("job", count=1, **words)))
    assert submitted.keys() == listed.keys()


async def test_what_containers_are_made_from_is_read_for_them_alone(ready: Cluster) -> None:
    """A session may have much of it, and a site many sessions, which are looked at all the time."""
    seen: list[str] = []

    def note(*args: Any) -> None:
        seen.append(args[2])

    event.listen(ready.database.engine.sync_engine, "before_cursor_execute", note)
    await run(ready, "demo", args=["x"], environment={"A": "1"}, pvcs=[{"name": "data", "target": "/data"}])
    columns = ("args", "command", "environment", "mounts", "sandbox_rules")
    assert all(any(f"sessions.{column}" in text for text in seen) for column in columns)
    ready.change_container(await ready.session("demo"), warning="it is hot")
    seen.clear()
    await ready.heartbeat(gpus=3)
    await ready.settle()
    await ok(ready.admin.get(f"{V1}/sessions"))
    event.remove(ready.database.engine.sync_engine, "before_cursor_execute", note)
    assert any("UPDATE containers" in text for text in seen)
    assert not [text for text in seen if any(f"sessions.{column}" in text for column in columns)]


async def test_a_page_ends_before_it_is_too_long(ready: Cluster) -> None:
    """Reasons of a MiB: as many as fit into a few, and each session once."""
    await ok(ready.admin.post(f"{V1}/sessions/batch", json=body("job", count=10)))
    async with ready.database.transaction() as db:
        await db.execute(update(Session).values(reason="x" * (1 << 20)))
    seen: list[str] = []
    after, longest = None, 0
    while after or not seen:
        answer = await ready.admin.get(f"{V1}/sessions", params={"after": after} if after else {})
        again = await ready.admin.get(answer.url, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.headers.get("X-Next")) == (304, answer.headers.get("X-Next"))
        seen += [row["name"] for row in answer.json()]
        longest = max(longest, len(answer.content))
        after = answer.headers.get("X-Next")
    assert seen == [f"job-{number}" for number in range(1, 11)]
    assert 2 << 20 < longest < 5 << 20


async def test_filters(ready: Cluster) -> None:
    await ready.add_project("team-b", 1000)
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/projects/team-b", json={"members": ["alice"]}))
        await run(ready, "one")
        await ok(alice.post(f"{V1}/sessions", json=body("two", "team-b", gpu_milli=0, cpu_milli=9000 - 1001)))
        assert await names(ready.admin) == ["one", "two"]
        assert await names(ready.admin, project="team-b") == ["two"]
        assert await names(ready.admin, user="admin") == ["one"]
        assert await names(ready.admin, node="worker1") == ["one"]
        assert await names(ready.admin, state="PENDING") == ["two"]
        assert await names(alice) == ["two"], "others' projects are not seen"
        await refused(alice.get(f"{V1}/sessions", params={"project": "team-a"}), 404)


async def test_pages_follow_one_another(ready: Cluster) -> None:
    await ok(ready.admin.post(f"{V1}/sessions/batch", json=body("job", count=5)))
    seen, after = [], None
    for _ in range(3):
        query = {"limit": 2} | ({"after": after} if after else {})
        answer = await ready.admin.get(f"{V1}/sessions", params=query)
        seen += [row["name"] for row in answer.json()]
        after = answer.headers.get("X-Next")
    assert (seen, after) == ([f"job-{number}" for number in range(1, 6)], None)


@pytest.mark.parametrize("after", ["x", "1.z", "9" * 17 + "." + "0" * 32])
async def test_what_is_no_cursor(ready: Cluster, after: str) -> None:
    assert (await refused(ready.admin.get(f"{V1}/sessions", params={"after": after}), 422))["where"] == "after"


async def test_a_poller_is_told_that_nothing_changed(ready: Cluster) -> None:
    await ready.submit("demo")
    first = await ready.admin.get(f"{V1}/sessions")
    same = await ready.admin.get(f"{V1}/sessions", headers={"If-None-Match": first.headers["ETag"]})
    assert (same.status_code, same.content) == (304, b"")
    page = await ready.admin.get(f"{V1}/sessions?limit=1", headers={"If-None-Match": first.headers["ETag"]})
    assert page.status_code == 200, "another page"
    await ready.settle()
    changed = await ready.admin.get(f"{V1}/sessions", headers={"If-None-Match": first.headers["ETag"]})
    assert (changed.status_code, changed.json()[0]["state"]) == (200, "RUNNING")


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        ({"project": "team-b"}, 20),
        ({"user": "bobby"}, 20),
        ({"user": "bobby", "all": True}, 20),
        ({"all": True}, 250),
        ({"all": True, "project": "team-a"}, 250),
        ({"all": True, "user": "admin"}, 250),
    ],
)
async def test_a_page_reads_what_it_shows_however_many_have_ended(
    ready: Cluster, asked: dict[str, Any], most: int
) -> None:
    """The last page of a walk, and lists of whom and what has few.

    So many have ended that PostgreSQL finds twenty by an index, however full its pages are.
    """
    for project in ("team-b", "team-c"):
        await ready.add_project(project)
    await asyncio.to_thread(history.fill, ready.database, 12_000)
    query = {"limit": 20} | asked
    async with ready.database.reading() as db:
        oldest = select(Session.created_at, Session.id).order_by(Session.created_at, Session.id).offset(11_970).limit(1)
        row = (await db.execute(oldest)).one()
    if most > 20:
        query["after"] = session_pages.cursor(row.created_at, row.id)
    with history.noted(ready.database) as sent:
        await ready.admin.get(f"{V1}/sessions", params=query)
    assert await asyncio.to_thread(history.rows_read, ready.database, sent) <= most
