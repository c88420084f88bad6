"""Requests about volumes that come at the same moment: none fails unexpectedly, and nothing is said of nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from api.database import exclusively
from api.resources.volumes import service
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import body, is_somebody_waiting

pytestmark = pytest.mark.anyio


@pytest.fixture
def slow_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let others come between what was locked before the volumes' lock, and what is locked with it."""

    async def lock(db: Any, key: int) -> None:
        await asyncio.sleep(0.05)
        await exclusively(db, key)
        await asyncio.sleep(0.05)

    monkeypatch.setattr(service, "exclusively", lock)


async def test_one_that_is_deleted_while_it_is_handed_over_says_whose_it_was(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready.add_project("team-b")
    made = await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    path, hand_over, handed = f"{V1}/volumes/{made['id']}", service.hand_over, asyncio.Event()

    async def slow(*args: Any) -> None:
        await hand_over(*args)
        handed.set()
        while not await is_somebody_waiting(ready):  # noqa: ASYNC110 -- what it waits for tells nobody
            await asyncio.sleep(0.01)

    async def later() -> Any:
        await handed.wait()
        return await ready.admin.delete(path)

    monkeypatch.setattr(service, "hand_over", slow)
    async with asyncio.timeout(60):
        moved, deleted = await asyncio.gather(
            ready.admin.post(f"{path}/hand-over", json={"project": "team-b"}), later()
        )
    assert (moved.status_code, deleted.status_code) == (200, 202), deleted.text
    assert deleted.json()["former_project"] == "team-b"


@pytest.mark.usefixtures("slow_lock")
async def test_a_project_hands_its_volumes_over_while_it_gets_another_one(ready: Cluster) -> None:
    await ready.add_project("team-b")

    def create(project: str) -> Awaitable[Any]:
        return ready.admin.post(f"{V1}/volumes", json={"name": "third", "project": project})

    def submit(project: str) -> Awaitable[Any]:
        pvcs = [{"name": "more", "target": "/more"}]
        return ready.admin.post(f"{V1}/sessions", json=body("s", project, pvcs=pvcs))

    calls: tuple[Callable[[str], Awaitable[Any]], ...] = (create, submit)
    for number, call in enumerate(calls * 2):
        project = f"race-{number}"
        await ready.add_project(project)
        await ok(ready.admin.post(f"{V1}/volumes", json={"name": f"data-{number}", "project": project}))
        params = {"volumes": "hand-over", "to": "team-b"}
        made, deleted = await asyncio.gather(
            call(project), ready.admin.delete(f"{V1}/projects/{project}", params=params)
        )
        assert made.status_code in (201, 404, 409), made.text
        assert deleted.status_code in (200, 409), deleted.text
