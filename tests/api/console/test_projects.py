"""The page of projects: what they hold, and who is in them."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.api.cluster import V1, Cluster, ok

pytestmark = pytest.mark.anyio


def cells(page: str, project: str) -> list[str]:
    """Return what the cells of a project's row say, without their markup."""
    (row,) = [row for row in re.findall(r"<tr id.*?</tr>", page, re.DOTALL) if f'title="{project}"' in row]
    return [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]


async def test_a_project_says_what_it_holds_and_who_is_in_it(ready: Cluster, browser: httpx.AsyncClient) -> None:
    async with await ready.user("alice"), await ready.user("bob"):
        pass
    period = {"ends_at": "2999-01-01T00:00:00Z"}
    people = {"members": ["alice"], "managers": ["bob"]}
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False, "period": period, **people}))
    await ready.submit("first", 1000)
    await ready.settle()
    found = cells((await browser.get("/projects")).text, "team-a")
    assert found == ["1", "4", "25 %", "–", "managed by bob alice", "2999-01-01 00:00 UTC"]


async def test_nobody_sees_projects_of_others(ready: Cluster) -> None:
    async with await ready.user("alice") as alice:
        page = (await alice.get("/projects")).text
    assert "You are in no project yet" in page
    assert "team-a" not in page
