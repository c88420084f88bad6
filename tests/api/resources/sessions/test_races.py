"""Submissions against what happens to their user at the same moment, and batches that are more than their sum."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import delete, event

from api.resources.user_policies import service as user_policies
from api.tables.users import User
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster
from tests.api.steps import body

pytestmark = pytest.mark.anyio


async def test_who_is_deleted_while_submitting_gets_no_session(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session without its user would be nobody's to end."""
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        hold = user_policies.hold

        async def overtaken(db: Any, *args: Any) -> Any:
            await db.execute(delete(User).where(User.name == "alice"))
            return await hold(db, *args)

        monkeypatch.setattr(user_policies, "hold", overtaken)
        error = await refused(alice.post(f"{V1}/sessions", json=body()), 401)
        assert error["reason"] == "the user has been deleted"
    assert await ready.states() == {}


async def test_a_batch_reads_the_taken_addresses_once(ready: Cluster) -> None:
    async def statements(count: int) -> int:
        seen: list[str] = []
        engine = ready.database.engine.sync_engine

        def note(*args: Any) -> None:
            seen.append(args[2])

        event.listen(engine, "before_cursor_execute", note)
        request = body(f"job{count}", count=count, gpu_milli=1000, ports=[8080])
        made = await ok(ready.admin.post(f"{V1}/sessions/batch", json=request))
        event.remove(engine, "before_cursor_execute", note)
        assert len({session["name"] for session in made}) == count
        return len([text for text in seen if text.startswith("SELECT")])

    await statements(1)  # reads the nodes, which is done once
    assert await statements(2) == await statements(20)


async def test_the_sessions_of_a_batch_share_no_base_path(ready: Cluster) -> None:
    request = body("lab", count=2, gpu_milli=1000, ports=[8888], args=["--NotebookApp.base_url=/lab"])
    error = await refused(ready.admin.post(f"{V1}/sessions/batch", json=request), 409)
    assert error["reason"] == "the base_url lab is taken"
    assert await ready.states() == {}


async def test_submissions_against_the_deletion_of_their_project(ready: Cluster) -> None:
    """Whoever comes first wins: nothing fails unexpectedly, and no session stays without a project."""
    for number in range(10):
        project = f"race-{number}"
        await ready.add_project(project, 1000)
        answers = await asyncio.gather(
            *(ready.admin.post(f"{V1}/sessions", json=body(f"s{index}", project)) for index in range(3)),
            ready.admin.delete(f"{V1}/projects/{project}"),
        )
        statuses = [answer.status_code for answer in answers]
        assert set(statuses[:3]) <= {201, 404, 409}, statuses
        assert statuses[3] in (200, 409), statuses
        assert (statuses[3] == 200) != (201 in statuses[:3]), statuses


async def test_one_address_for_two_submissions_at_once(database_url: str) -> None:
    projects = ("team-a", "team-b", "team-c")
    async with running_cluster(database_url, apps_url="https://edge:9443") as cluster:
        await cluster.add_image()
        for project in projects:
            await cluster.add_project(project, 1000)
        answers = await asyncio.gather(
            *(cluster.admin.post(f"{V1}/sessions", json=body("lab", project, ports=[8888])) for project in projects)
        )
    urls = {answer.json()["url"] for answer in answers}
    assert len(urls) == 3
    assert "https://edge:9443/lab-8888/" in urls
