"""Who sees a session: its project, or its owner and those who look after the project."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from api.resources.sessions import repository
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body

pytestmark = pytest.mark.anyio


async def people(cluster: Cluster, *names: str) -> list[httpx.AsyncClient]:
    """Create users who are members of the project, the first of them its manager."""
    clients = [await cluster.user(name) for name in names]
    change = {"managers": [names[0]], "members": list(names[1:])}
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json=change))
    return clients


async def submit(client: httpx.AsyncClient, name: str, **more: Any) -> dict[str, Any]:
    return dict(await ok(client.post(f"{V1}/sessions", json=body(name, **more))))


async def listed(client: httpx.AsyncClient, **query: Any) -> set[str]:
    return {row["name"] for row in await ok(client.get(f"{V1}/sessions", params={"all": True, **query}))}


async def test_a_session_is_seen_as_its_project_says_unless_it_says_so_itself(ready: Cluster) -> None:
    mary, alice, bob = await people(ready, "mary", "alice", "bob")
    assert (await submit(alice, "usual"))["access"] == "project"
    assert (await submit(alice, "hidden", access="private"))["access"] == "private"
    await ok(mary.patch(f"{V1}/projects/team-a", json={"session_access": "private"}))
    assert (await submit(alice, "new"))["access"] == "private"
    assert (await submit(alice, "open", access="project"))["access"] == "project"
    batch = body("many", count=2, access="project")
    assert [row["access"] for row in await ok(alice.post(f"{V1}/sessions/batch", json=batch))] == ["project"] * 2
    assert await listed(bob) == {"usual", "open", "many-1", "many-2"}, "what was there stays as it is"
    assert await listed(alice) == await listed(mary) == await listed(ready.admin)


async def test_the_managers_of_a_project_say_how_its_sessions_are_seen_and_its_members_do_not(ready: Cluster) -> None:
    mary, alice = await people(ready, "mary", "alice")
    wanted = {"session_access": "private"}
    await refused(alice.patch(f"{V1}/projects/team-a", json=wanted), 403)
    assert (await ok(mary.patch(f"{V1}/projects/team-a", json=wanted)))["session_access"] == "private"
    await refused(mary.patch(f"{V1}/projects/team-a", json=wanted | {"description": "x"}), 403)
    assert (await refused(mary.patch(f"{V1}/projects/team-a", json={"session_access": None}), 422))["where"] == (
        "session_access"
    )


async def test_no_filter_and_no_page_shows_what_is_not_seen(ready: Cluster) -> None:
    _, alice, bob = await people(ready, "mary", "alice", "bob")
    for number in range(4):
        await submit(alice, f"s-{number}", access="private" if number % 2 else "project")
    assert await listed(bob, project="team-a", user="alice") == {"s-0", "s-2"}
    assert await listed(bob, state="PENDING") == {"s-0", "s-2"}
    first = await bob.get(f"{V1}/sessions", params={"limit": 1})
    second = await bob.get(f"{V1}/sessions", params={"limit": 1, "after": first.headers["X-Next"]})
    assert [row["name"] for row in (*first.json(), *second.json())] == ["s-0", "s-2"]
    assert "X-Next" not in second.headers


async def test_a_private_session_of_somebody_who_is_deleted_is_left_to_those_who_look_after_the_project(
    ready: Cluster,
) -> None:
    mary, alice, bob = await people(ready, "mary", "alice", "bob")
    made = await submit(alice, "hidden", access="private")
    await ok(alice.delete(f"{V1}/sessions/hidden", params={"project": "team-a"}))
    await ok(ready.admin.delete(f"{V1}/users/alice"))
    assert await listed(bob) == set()
    assert await listed(mary) == {"hidden"}
    await refused(bob.get(f"{V1}/sessions/{made['id']}", params={"project": "team-a"}), 404)


async def test_the_name_of_a_private_session_is_taken_and_nothing_more_is_said(ready: Cluster) -> None:
    mary, alice, bob = await people(ready, "mary", "alice", "bob")
    await submit(alice, "hidden", access="private")
    told = await refused(bob.post(f"{V1}/sessions", json=body("hidden")), 409)
    assert (told["reason"], told["hint"]) == ("team-a has a session hidden already", "choose another name")
    told = await refused(mary.post(f"{V1}/sessions", json=body("hidden")), 409)
    assert told["reason"] == "team-a has a session hidden already, and it is PENDING"


async def test_no_reason_names_a_private_session_to_others(ready: Cluster) -> None:
    _, alice = await people(ready, "mary", "alice")
    await ready.add_project("team-b", 0)
    await ready.submit("guest", project="team-b", gpu_milli=4000)
    await ready.settle()
    await submit(alice, "hidden", gpu_milli=2000, access="private")
    await ready.manager.loop.run()
    reason = (await ready.session("guest", "team-b"))["reason"]
    assert reason.startswith("reclaimed for a session of another project: team-b holds 4 GPUs, 4 GPUs of them beyond")
    assert reason.endswith("; a session of another project is within its quota")


async def test_who_has_left_the_project_opens_no_app_there_any_more(ready: Cluster) -> None:
    _, alice = await people(ready, "mary", "alice")
    await submit(alice, "web", ports=[8888])
    await ready.settle()
    headers = {"X-Original-URI": "/web-8888/"}
    assert (await alice.get(f"{V1}/apps/authorize", headers=headers)).headers.get("X-Status") != "404"
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": []}))
    assert (await alice.get(f"{V1}/apps/authorize", headers=headers)).headers["X-Status"] == "404"


async def change_access(client: httpx.AsyncClient, name: str, wanted: str) -> httpx.Response:
    return await client.patch(f"{V1}/sessions/{name}", params={"project": "team-a"}, json={"access": wanted})


async def test_its_owner_and_administrators_change_who_sees_a_session_whatever_became_of_it(ready: Cluster) -> None:
    mary, alice, bob = await people(ready, "mary", "alice", "bob")
    await submit(alice, "demo")
    await ready.settle()
    assert (await ok(change_access(alice, "demo", "private")))["access"] == "private"
    assert await listed(bob) == set()
    await refused(change_access(bob, "demo", "project"), 404)
    await refused(change_access(mary, "demo", "project"), 403)
    assert (await ok(change_access(ready.admin, "demo", "project")))["access"] == "project"
    await refused(change_access(bob, "demo", "private"), 403)
    await ok(alice.delete(f"{V1}/sessions/demo", params={"project": "team-a"}))
    await ready.settle()
    assert (await ok(change_access(alice, "demo", "private")))["access"] == "private"
    assert await listed(bob) == set()
    both = {"access": "project", "priority": 10}
    await refused(alice.patch(f"{V1}/sessions/demo", params={"project": "team-a"}, json=both), 422)


async def test_a_change_of_access_is_audited(ready: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    await ready.submit("demo")
    await ok(change_access(ready.admin, "demo", "private"))
    [line] = [line for line in capsys.readouterr().out.splitlines() if "session access" in line]
    assert all(word in line for word in ("event=audit", "session=demo", "access=private", "by=admin"))


async def test_a_volume_does_not_count_sessions_that_the_reader_does_not_see(ready: Cluster) -> None:
    mary, alice, bob = await people(ready, "mary", "alice", "bob")
    await submit(alice, "hidden", access="private", pvcs=[{"name": "data", "target": "/data"}])
    counts = [(await ok(client.get(f"{V1}/volumes")))[0]["sessions"] for client in (mary, alice, bob, ready.admin)]
    assert counts == [1, 1, 0, 1]
    query = {"project": "team-a"}
    await refused(mary.delete(f"{V1}/volumes/data", params=query), 409)


async def test_an_address_in_a_domain_tells_nothing_of_other_tenants(ready: Cluster) -> None:
    await ok(ready.admin.post(f"{V1}/domains", json={"name": "acme", "quota_milli": 1000}))
    project = {"name": "team-d", "domain": "acme", "quota_milli": 500, "period": {"ends_at": None}}
    await ok(ready.admin.post(f"{V1}/projects", json=project))
    await submit(ready.admin, "lab", ports=[8888])
    for name in ("lab", "free"):
        await ok(ready.admin.post(f"{V1}/sessions", json=body(name, "team-d", gpu_milli=50, ports=[8888])))
    async with ready.database.reading() as db:
        paths = (await repository.taken_paths(db)).paths
    assert paths == {"lab-8888", "team-d-lab-8888", "team-d-free-8888"}
