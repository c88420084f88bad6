"""Volumes of projects: made, listed, deleted, handed over, and what becomes of them when a project goes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import update

from api.control.volume_keeper import NOBODY
from api.resources.volumes import service
from api.tables.volumes import Volume, VolumeState
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.endpoints import scene
from tests.api.steps import body, delete, run

pytestmark = pytest.mark.anyio

DATA = [{"name": "data", "target": "/data"}]
IN_A = {"project": "team-a"}


async def volumes(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    return list(await ok(client.get(f"{V1}/volumes", params=query)))


def source(cluster: Cluster, session: dict[str, Any]) -> str:
    (mount,) = cluster.engine.specs[f"session-{session['id']}-0-0"].mounts
    return mount.source


async def gone(cluster: Cluster, project: str = "team-a", **query: str) -> httpx.Response:
    return await cluster.admin.delete(f"{V1}/projects/{project}", params=query)


async def remove(cluster: Cluster, name: str = "data", **query: str) -> httpx.Response:
    return await cluster.admin.delete(f"{V1}/volumes/{name}", params={**IN_A, **query})


async def let_time_pass(cluster: Cluster) -> None:
    cluster.clock.passed += 1000
    await cluster.settle()


async def test_a_project_made_anew_by_an_old_name_has_none_of_the_old_ones_folders(ready: Cluster) -> None:
    before = source(ready, await run(ready, "one", pvcs=DATA))
    await delete(ready, "one")
    await ready.settle()
    await ok(gone(ready, volumes="keep"))
    await ready.add_project("team-a", 4000)
    after = source(ready, await run(ready, "two", pvcs=DATA))
    assert before != after
    for path in (before, after):
        UUID(path.removeprefix("/srv/shared/"))  # each has its id for a folder


async def test_sessions_of_a_project_share_what_they_name(ready: Cluster) -> None:
    first = await run(ready, "one", pvcs=DATA)
    second = await run(ready, "two", pvcs=[{"name": "data", "target": "/d", "read_only": True}])
    assert source(ready, first) == source(ready, second)
    (volume,) = await volumes(ready.admin)
    assert (volume["name"], volume["project"], volume["state"], volume["storage"]) == (
        *("data", "team-a", "ready", "shared"),
    )
    assert volume["sessions"] == 2
    assert volume["created_by"] == "admin"
    assert source(ready, first) == f"/srv/shared/{volume['folder']}" == f"/srv/shared/{volume['id']}"


async def test_one_is_made_shown_and_named_by_sessions(ready: Cluster) -> None:
    made = await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    assert (await ok(ready.admin.get(f"{V1}/volumes/data", params=IN_A)))["id"] == made["id"]
    assert (await ok(ready.admin.get(f"{V1}/volumes/{made['id']}")))["name"] == "data"
    again = await refused(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}), 409)
    assert again["reason"] == "team-a has a volume data already"
    assert (await refused(ready.admin.get(f"{V1}/volumes/data"), 422))["where"] == "project"
    await refused(ready.admin.get(f"{V1}/volumes/other", params=IN_A), 404)
    assert source(ready, await run(ready, "one", pvcs=DATA)) == f"/srv/shared/{made['id']}"


async def test_what_a_session_uses_is_neither_deleted_nor_handed_over(ready: Cluster) -> None:
    mary, alice, bob = [await ready.user(name) for name in ("mary", "alice", "bob")]
    change = {"managers": ["mary"], "members": ["alice", "bob"]}
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json=change))
    await ready.add_project("team-b", 1000)
    await ok(alice.post(f"{V1}/sessions", json=body("hidden", pvcs=DATA, access="private")))
    await ok(bob.post(f"{V1}/sessions", json=body("open", pvcs=DATA)))
    told = await refused(mary.delete(f"{V1}/volumes/data", params=IN_A), 409)
    assert told["reason"] == "volume data is in use by 2 live sessions: hidden, open"
    await refused(bob.delete(f"{V1}/volumes/data", params=IN_A), 403)
    hand_over = ready.admin.post(f"{V1}/volumes/data/hand-over", params=IN_A, json={"project": "team-b"})
    assert (await refused(hand_over, 409))["hint"] == "delete the sessions first"
    for name in ("hidden", "open"):
        await delete(ready, name)
    await ready.settle()
    assert (await mary.delete(f"{V1}/volumes/data", params=IN_A)).status_code == 202


async def test_a_deleted_one_goes_when_a_node_has_removed_its_files(ready: Cluster) -> None:
    session = await run(ready, "one", pvcs=DATA)
    folder = source(ready, session)
    ready.engine.folders.add(folder.removeprefix("/srv/shared/"))
    await delete(ready, "one")
    await ready.settle()
    assert (await ok(remove(ready)))["state"] == "deleting"
    await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    ready.engine.stuck = "Operation not permitted"
    await ready.settle()
    (stuck,) = await volumes(ready.admin, state="deleting")
    assert stuck["reason"] == "worker1: Operation not permitted"
    ready.engine.stuck = ""
    for _ in range(2):
        await let_time_pass(ready)
    assert ready.engine.folders == set()
    (other,) = await volumes(ready.admin)
    assert other["state"] == "ready", "one that was made by the name meanwhile stays"


async def test_one_whose_storage_no_node_has_says_so_and_waits(ready: Cluster) -> None:
    await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    ready.engine.without_storage = {"worker1"}
    await ok(remove(ready))
    await ready.settle()
    (volume,) = await volumes(ready.admin)
    assert (volume["state"], volume["reason"]) == (
        "deleting",
        "no node that has the storage answers: a worker that mounts it has to delete its files",
    )
    await ready.add_node("worker2")
    await let_time_pass(ready)
    assert await volumes(ready.admin) == []


async def test_one_whose_storage_is_mounted_nowhere_stays_until_it_is(ready: Cluster) -> None:
    """The empty place of a mount has no folder, and that says nothing."""
    await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    ready.engine.mounted = False
    await ok(remove(ready))
    await ready.settle()
    (volume,) = await volumes(ready.admin)
    assert (volume["state"], volume["reason"]) == ("deleting", NOBODY)
    ready.engine.mounted = True
    await let_time_pass(ready)
    assert await volumes(ready.admin) == []


async def test_a_project_with_volumes_is_not_deleted_without_a_word_on_them(ready: Cluster) -> None:
    for name in ("data", "models"):
        await ok(ready.admin.post(f"{V1}/volumes", json={"name": name, "project": "team-a"}))
    told = await refused(gone(ready), 409)
    assert (told["where"], told["reason"]) == ("volumes", "team-a has volumes: data, models")
    assert (await refused(gone(ready, volumes="hand-over"), 422))["where"] == "to"
    assert (await refused(gone(ready, volumes="keep", to="team-b"), 422))["where"] == "to"
    assert (await refused(gone(ready, volumes="hand-over", to="team-a"), 422))["where"] == "to"
    assert (await refused(gone(ready, volumes="hand-over", to="team-b"), 404))["where"] == "to"
    assert {volume["state"] for volume in await volumes(ready.admin)} == {"ready"}


async def test_what_is_kept_of_a_project_is_handed_over_later(ready: Cluster) -> None:
    made = await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    await ok(gone(ready, volumes="keep"))
    (kept,) = await volumes(ready.admin, state="retained")
    assert (kept["project"], kept["former_project"], kept["id"]) == (None, "team-a", made["id"])
    await ready.add_project("team-b", 4000)
    await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-b"}))
    path = f"{V1}/volumes/{made['id']}/hand-over"
    assert (await refused(ready.admin.post(path, json={"project": "team-b"}), 409))["where"] == "name"
    moved = await ok(ready.admin.post(path, json={"project": "team-b", "name": "old"}))
    assert (moved["project"], moved["former_project"], moved["state"]) == ("team-b", "", "ready")
    session = await run_in_b(ready, [{"name": "old", "target": "/data"}])
    assert source(ready, session) == f"/srv/shared/{made['id']}"


async def run_in_b(cluster: Cluster, pvcs: list[dict[str, str]]) -> dict[str, Any]:
    await cluster.submit("later", project="team-b", pvcs=pvcs)
    await cluster.settle()
    return await cluster.session("later", "team-b")


async def test_all_volumes_of_a_project_go_with_it_or_to_another(ready: Cluster) -> None:
    await ready.add_project("team-b", 1000)
    await ready.add_project("team-c", 1000)
    for project in ("team-a", "team-b"):
        await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": project}))
    assert (await refused(gone(ready, volumes="hand-over", to="team-b"), 409))["where"] == "to"
    await ok(gone(ready, volumes="hand-over", to="team-c"))
    assert [(volume["name"], volume["project"]) for volume in await volumes(ready.admin)] == [
        *(("data", "team-b"), ("data", "team-c"))
    ]
    await ok(gone(ready, "team-c", volumes="delete"))
    (left,) = await volumes(ready.admin, state="deleting")
    assert (left["project"], left["former_project"]) == (None, "team-c")


async def test_one_that_goes_while_a_session_is_submitted_is_not_mounted(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    find = service.for_session

    async def late(*args: Any) -> dict[str, Volume]:
        found = await find(*args)
        async with ready.database.transaction() as db:
            await db.execute(update(Volume).values(state=VolumeState.DELETING))
        return found

    monkeypatch.setattr(service, "for_session", late)
    told = await refused(ready.admin.post(f"{V1}/sessions", json=body(pvcs=DATA)), 409)
    assert told["reason"] == "a volume of team-a was deleted or handed over meanwhile"
    assert await ready.states() == {}


async def test_an_administrator_of_a_domain_hands_over_within_it_alone(cluster: Cluster) -> None:
    await scene.prepare(cluster)
    path, of = f"{V1}/volumes/v-carl/hand-over", {"project": "rockets"}
    async with cluster.client(scene.key_of("domain-admin")) as client:
        told = await refused(client.post(path, params=of, json={"project": "planes"}), 404)
        assert told["where"] == "project"
        assert (await ok(client.post(path, params=of, json={"project": "engines"})))["project"] == "engines"


async def test_sizes_are_what_the_storage_tells(ready: Cluster) -> None:
    made = await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    ready.engine.folders, ready.engine.used_mib = {made["id"]}, 7
    await let_time_pass(ready)
    (volume,) = await volumes(ready.admin)
    assert (volume["used_mib"], volume["limit_mib"], volume["measured_at"] is None) == (7, None, False)


async def test_a_site_without_storage_has_no_volumes(ready: Cluster) -> None:
    object.__setattr__(ready.settings, "pvc_root", None)
    told = await refused(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}), 422)
    assert told["reason"] == "this site has no shared storage for sessions"
