"""The queue of the whole site, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from api.tables.sessions import Session
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body

pytestmark = pytest.mark.anyio

QUEUE = f"{V1}/scheduler/queue"


async def test_pages_follow_one_another_and_those_without_a_place_come_last(ready: Cluster) -> None:
    await ok(ready.admin.post(f"{V1}/sessions/batch", json=body("job", count=7)))
    async with ready.database.transaction() as db:
        for number, position in {1: 3, 2: 0, 3: 2, 4: 2, 5: 1, 6: 0, 7: 2**31 - 2}.items():
            await db.execute(update(Session).where(Session.name == f"job-{number}").values(position=position))
    assert await names(ready, limit=1000) == (in_order := [f"job-{number}" for number in (5, 3, 4, 1, 7, 2, 6)])
    for limit in (1, 2, 3):
        assert await names(ready, limit=limit) == in_order


async def names(cluster: Cluster, limit: int) -> list[str]:
    """Return the names of all pages."""
    found: list[str] = []
    params: dict[str, Any] = {"limit": limit}
    while True:
        answer = await cluster.admin.get(QUEUE, params=params)
        assert len(answer.json()) <= limit
        found += [row["name"] for row in answer.json()]
        if (after := answer.headers.get("X-Next")) is None:
            return found
        params["after"] = after


@pytest.mark.parametrize("after", ["x", "1.1", "9" * 11 + ".1." + "0" * 32])
async def test_what_is_no_cursor(cluster: Cluster, after: str) -> None:
    assert (await refused(cluster.admin.get(QUEUE, params={"after": after}), 422))["where"] == "after"


async def test_a_cursor_of_no_place_is_the_end(ready: Cluster) -> None:
    await ready.submit("demo")
    assert await ok(ready.admin.get(QUEUE, params={"after": "9999999999.1." + "0" * 32})) == []
