"""Sessions on PostgreSQL, where requests really happen at once: submissions against deletions, and a whole life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from api.tables.sessions import Container
from tests.postgresql import new_database
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.api.steps import body

pytestmark = pytest.mark.anyio

ROUNDS = 10


@pytest.fixture
async def cluster(postgresql_server: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(new_database(postgresql_server), apps_url="https://edge:8443") as running:
        await running.add_node()
        await running.add_image()
        yield running


async def test_a_batch_runs_waits_and_is_listed_by_pages(cluster: Cluster) -> None:
    await cluster.add_project("team-a", 4000)
    await ok(cluster.admin.post(f"{V1}/sessions/batch", json=body("job", count=5, gpu_milli=1000, ports=[80])))
    await cluster.manager.settle()
    states = await cluster.states()
    assert sorted(states.values()) == ["PENDING", *["RUNNING"] * 4]
    first = await cluster.admin.get(f"{V1}/sessions", params={"limit": 3})
    rest = await cluster.admin.get(f"{V1}/sessions", params={"limit": 3, "after": first.headers["X-Next"]})
    assert [row["name"] for row in (*first.json(), *rest.json())] == [f"job-{number}" for number in range(1, 6)]
    assert first.json()[0]["url"] == "https://edge:8443/job-1-80/"


async def test_submissions_against_the_deletion_of_their_project(cluster: Cluster) -> None:
    """Whoever comes first wins: nothing fails unexpectedly, and no session stays without a project."""
    for number in range(ROUNDS):
        project = f"race-{number}"
        await cluster.add_project(project, 1000)
        answers = await asyncio.gather(
            *(cluster.admin.post(f"{V1}/sessions", json=body(f"s{index}", project)) for index in range(3)),
            cluster.admin.delete(f"{V1}/projects/{project}"),
        )
        statuses = [answer.status_code for answer in answers]
        assert set(statuses[:3]) <= {201, 404, 409}, statuses
        assert statuses[3] in (200, 409), statuses
        assert (statuses[3] == 200) != (201 in statuses[:3]), statuses


async def test_one_address_for_two_submissions_at_once(cluster: Cluster) -> None:
    for project in ("team-a", "team-b", "team-c"):
        await cluster.add_project(project, 1000)
    answers = await asyncio.gather(
        *(
            cluster.admin.post(f"{V1}/sessions", json=body("lab", project, ports=[8888]))
            for project in ("team-a", "team-b", "team-c")
        )
    )
    urls = {(await ok(_done(answer)))["url"] for answer in answers}
    assert len(urls) == 3
    assert "https://edge:8443/lab-8888/" in urls


async def _done(answer: object) -> object:
    return answer


async def test_a_list_that_is_as_it_was_is_told_by_its_mark(cluster: Cluster) -> None:
    await cluster.add_project("team-a", 4000)
    await ok(cluster.admin.post(f"{V1}/sessions", json=body("one", gpu_milli=500)))
    tags: list[str] = []

    async def look(**params: str) -> int:
        headers = {"If-None-Match": tags[-1]} if tags else {}
        answer = await cluster.admin.get(f"{V1}/sessions", params={"project": "team-a", **params}, headers=headers)
        tags.append(answer.headers["ETag"])
        return answer.status_code

    async def container(**values: Any) -> None:
        async with cluster.database.transaction() as db:
            await db.execute(update(Container).values(**values))

    assert [await look(), await look()] == [200, 304]
    assert await look(limit="1") == 200, "another page"
    assert [await look(), await look()] == [200, 304]
    changes: list[Callable[[], Awaitable[Any]]] = [
        cluster.manager.settle,
        lambda: container(warning="GPU memory over the limit"),
        lambda: cluster.add_node("worker1", 5),
        lambda: ok(cluster.admin.post(f"{V1}/sessions", json=body("two", gpu_milli=500))),
        lambda: ok(cluster.admin.delete(f"{V1}/sessions/one", params={"project": "team-a"})),
    ]
    for number, change in enumerate(changes):
        await change()
        assert await look() == 200, number
        assert await look() == 304, number
    assert len({*tags}) == 2 + len(changes)
