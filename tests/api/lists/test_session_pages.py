"""Lists of sessions: who sees what, filters, pages, and answers that did not change."""

from __future__ import annotations

import pytest

from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body, run

pytestmark = pytest.mark.anyio


async def names(client: object, **query: object) -> list[str]:
    return [row["name"] for row in await ok(client.get(f"{V1}/sessions", params=query))]  # type: ignore[attr-defined]


async def test_a_list_shows_what_one_session_shows(ready: Cluster) -> None:
    await run(ready, "gang", replicas=2, ports=[80])
    (listed,) = await ok(ready.admin.get(f"{V1}/sessions"))
    assert listed == await ready.session("gang")


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
