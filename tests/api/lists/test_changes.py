"""Lists whose texts are kept by versions: after every change a list shows what one thing alone shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import combinations
from typing import Any

import pytest
from pydantic import TypeAdapter
from sqlalchemy import text, update

from api.resources.nodes.schemas import NodeView
from api.resources.sessions.views import SessionEntryView, SessionView
from api.tables.nodes import Node
from api.tables.sessions import Container
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.api.steps import body
from tests.installed import InstalledDatabase
from tests.postgresql import as_server_user, programs, running_server

pytestmark = pytest.mark.anyio

Change = Callable[[], Awaitable[Any]]


@pytest.fixture
async def cluster(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("api.lists.nodes.GROUPS_S", -1)
    async with running_cluster(database_url, apps_url="https://edge:9443") as running:
        yield running


async def written(cluster: Cluster, table: type[Node] | type[Container], **values: Any) -> None:
    async with cluster.database.transaction() as db:
        await db.execute(update(table).values(**values))


async def alone(cluster: Cluster, path: str, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what each thing shows alone, without what lists leave out."""
    found = []
    for row in listed:
        params = {"project": row["project"]} if "project" in row else {}
        shown = await ok(cluster.admin.get(f"{V1}/{path}/{row['name']}", params=params))
        left_out = SessionView.model_fields.keys() - SessionEntryView.model_fields.keys() if path == "sessions" else ()
        found.append({name: value for name, value in shown.items() if name not in left_out})
    return found


async def follows(cluster: Cluster, path: str, changes: list[Change]) -> None:
    """Look after each change: the answer is another one, then as it was, and says what each thing says alone."""
    tag, view = "", TypeAdapter(list[NodeView] if path == "nodes" else list[SessionEntryView])
    for number, change in enumerate(changes):
        await change()
        answer = await cluster.admin.get(f"{V1}/{path}", headers={"If-None-Match": tag})
        assert answer.status_code == 200, number
        view.validate_json(answer.content, strict=True)
        assert answer.json() == await alone(cluster, path, answer.json()), number
        tag = answer.headers["ETag"]
        again = await cluster.admin.get(f"{V1}/{path}", headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b""), number


async def test_a_list_of_nodes_follows_every_change(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    session = f"{V1}/sessions/one?project=team-a"
    changes: list[Change] = [
        lambda: cluster.add_node("worker1", 2),
        lambda: cluster.add_node("worker2", 0),
        lambda: cluster.add_node("worker1", 3),
        lambda: ok(cluster.admin.patch(f"{V1}/nodes/worker2/mode", json={"mode": "maintenance"})),
        lambda: written(cluster, Node, message="the disk is full"),
        lambda: run(cluster, "one"),
        lambda: run(cluster, "two"),
        lambda: end(cluster, session),
        lambda: ok(cluster.admin.post(f"{V1}/resource-groups", json={"name": "vision", "nodes": ["worker1"]})),
        lambda: ok(cluster.admin.delete(f"{V1}/resource-groups/vision")),
        lambda: ok(cluster.admin.delete(f"{V1}/nodes/worker2")),
    ]
    await follows(cluster, "nodes", changes)


async def test_a_list_of_sessions_follows_every_change(cluster: Cluster) -> None:
    await cluster.add_node("worker1", 4)
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    session = f"{V1}/sessions/one?project=team-a"
    changes: list[Change] = [
        lambda: ok(cluster.admin.post(f"{V1}/sessions", json=body("one", gpu_milli=500, ports=[80]))),
        lambda: ok(cluster.admin.post(f"{V1}/sessions", json=body("two", gpu_milli=500, replicas=2))),
        cluster.settle,
        lambda: written(cluster, Container, warning="GPU memory over the limit"),
        lambda: cluster.add_node("worker1", 3),
        lambda: ok(cluster.admin.patch(session, json={"gpu_milli": 250})),
        cluster.settle,
        lambda: end(cluster, session),
    ]
    await follows(cluster, "sessions", changes)


async def test_what_two_early_transactions_write_last_is_seen(cluster: Cluster) -> None:
    """One row's number falls by what the other's rises."""
    await cluster.add_node("worker1", 2)
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    await ok(cluster.admin.post(f"{V1}/sessions", json=body("one", gpu_milli=500, replicas=2)))
    await cluster.settle()
    async with AsyncExitStack() as stack:
        begun = {}
        # other tests begin transactions on this server, too, so that numbers may be left out
        for _ in range(10):
            connection = await stack.enter_async_context(cluster.database.engine.connect())
            begun[int((await connection.execute(text("SELECT pg_current_xact_id()::text"))).scalar_one())] = connection
        first, second, third, last = next(
            four for four in combinations(begun, 4) if four[0] + four[3] == sum(four[1:3])
        )
        tags = set()
        for warning, by in (("before", (first, last)), ("after", (second, third))):
            for rank, number in enumerate(by):
                change = update(Container).where(Container.rank == rank).values(warning=warning)
                await begun[number].execute(change)
                await begun[number].commit()
            answer = await cluster.admin.get(f"{V1}/sessions")
            tags.add(answer.headers["ETag"])
            assert [held["warning"] for held in answer.json()[0]["containers"]] == [warning, warning]
    assert len(tags) == 2


@pytest.fixture
def own_server() -> Iterator[InstalledDatabase]:
    """A database on a server that no other test uses."""
    with running_server() as folder:
        database = InstalledDatabase(folder)
        database.fresh()
        yield database
        database.close()


async def test_what_another_server_tells_is_not_taken_for_what_was(own_server: InstalledDatabase) -> None:
    """A server that was started from a copy gives the same numbers to other transactions."""
    async with running_cluster(own_server.url) as cluster:
        await cluster.add_image()
        await cluster.add_project("team-a", 4000)
        await cluster.add_node("worker1", 2)
        await ok(cluster.admin.post(f"{V1}/sessions", json=body("one", gpu_milli=500)))
        paths = [f"{V1}/sessions", f"{V1}/nodes"]
        before = [(await cluster.admin.get(path)).headers["ETag"] for path in paths]
        assert before == [(await cluster.admin.get(path)).headers["ETag"] for path in paths]
        as_server_user(programs() / "pg_ctl", "-D", own_server.folder / "data", "-w", "-m", "fast", "restart")
        after = [(await cluster.admin.get(path)).headers["ETag"] for path in paths]
        assert {*before}.isdisjoint(after)


async def test_what_is_as_it_was_still_says_what_follows(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    await ok(cluster.admin.post(f"{V1}/sessions/batch", json=body("job", count=3)))
    for name in ("worker1", "worker2"):
        await cluster.add_node(name, 0)
    for path in ("sessions", "nodes"):
        first = await cluster.admin.get(f"{V1}/{path}", params={"limit": 1})
        tag = {"If-None-Match": first.headers["ETag"]}
        again = await cluster.admin.get(f"{V1}/{path}", params={"limit": 1}, headers=tag)
        assert (again.status_code, again.headers["X-Next"]) == (304, first.headers["X-Next"])


async def test_nobody_is_told_for_long_what_was(cluster: Cluster) -> None:
    """While sessions start and end, some look all the time; when all is quiet, what they have is what there is."""
    await cluster.add_node("worker1", 4)
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    at_work = True

    async def watch(path: str) -> None:
        tag, shown = "", []
        while True:
            last = not at_work
            answer = await cluster.admin.get(f"{V1}/{path}", headers={"If-None-Match": tag})
            if answer.status_code == 200:
                tag, shown = answer.headers["ETag"], answer.json()
            if last:
                break
            await asyncio.sleep(0.01)
        assert shown == await alone(cluster, path, shown)

    watchers = [asyncio.create_task(watch(path)) for path in ("sessions", "nodes") * 2]
    for number in range(6):
        await ok(cluster.admin.post(f"{V1}/sessions/batch", json=body(f"job{number}", count=3, gpu_milli=300)))
        await cluster.settle()
        await cluster.heartbeat("worker1", 4)
        await ok(cluster.admin.delete(f"{V1}/sessions/job{number}-1", params={"project": "team-a"}))
        await cluster.settle()
    at_work = False
    await asyncio.gather(*watchers)


async def run(cluster: Cluster, name: str) -> None:
    await ok(cluster.admin.post(f"{V1}/sessions", json=body(name, gpu_milli=500)))
    await cluster.settle()


async def end(cluster: Cluster, session: str) -> None:
    await ok(cluster.admin.delete(session))
    await cluster.settle()
