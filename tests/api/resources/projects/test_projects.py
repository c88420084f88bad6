"""Projects, their quota and members; and images, which every project may use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.cluster import V1, Cluster, ok, problems, refused

pytestmark = pytest.mark.anyio

OPEN = {"ends_at": None}


async def test_a_project_from_its_creation_to_its_end(cluster: Cluster) -> None:
    await cluster.user("alice")
    body = {"name": "team-a", "quota_milli": 1500, "members": ["alice"], "description": "Speech"}
    made = await ok(cluster.admin.post(f"{V1}/projects", json={**body, "period": OPEN}))
    assert {key: made[key] for key in body} == body
    assert made["used_milli"] == 0
    changed = await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 2000}))
    assert (changed["quota_milli"], changed["members"], changed["description"]) == (2000, ["alice"], "Speech")
    changed = await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"members": [], "description": ""}))
    assert (changed["quota_milli"], changed["members"], changed["description"]) == (2000, [], "")
    await ok(cluster.admin.delete(f"{V1}/projects/team-a"))
    assert await ok(cluster.admin.get(f"{V1}/projects")) == []


async def test_members_see_only_their_projects(cluster: Cluster) -> None:
    await cluster.add_image()
    async with await cluster.user("alice") as alice, await cluster.user("bob") as bob:
        await cluster.add_project("team-a", 1000, "alice")
        await cluster.add_project("team-b", 1000, "bob")
        await cluster.submit("demo", project="team-a")
        assert [project["name"] for project in await ok(alice.get(f"{V1}/projects"))] == ["team-a"]
        assert [project["name"] for project in await ok(cluster.admin.get(f"{V1}/projects"))] == ["team-a", "team-b"]
        await ok(alice.get(f"{V1}/projects/team-a"))
        assert [row["name"] for row in await ok(alice.get(f"{V1}/sessions"))] == ["demo"]
        for path in ("projects/team-a", "sessions?project=team-a", "sessions/demo?project=team-a"):
            await refused(bob.get(f"{V1}/{path}"), 404)
        await refused(bob.get(f"{V1}/sessions/demo/logs?project=team-a"), 404)
        await refused(bob.delete(f"{V1}/sessions/demo?project=team-a"), 404)
        body = {"name": "mine", "project": "team-a", "image": "python", "gpu_milli": 500}
        await refused(bob.post(f"{V1}/sessions", json=body), 404)
        assert await ok(bob.get(f"{V1}/sessions")) == []


async def test_a_new_member_sees_the_project_at_once(cluster: Cluster) -> None:
    await cluster.add_project()
    async with await cluster.user("alice") as alice:
        await refused(alice.get(f"{V1}/projects/team-a"), 404)
        await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        await ok(alice.get(f"{V1}/projects/team-a"))


async def test_members_change_no_project(cluster: Cluster) -> None:
    async with await cluster.user("alice") as alice:
        await cluster.add_project("team-a", 1000, "alice")
        await refused(alice.patch(f"{V1}/projects/team-a", json={"quota_milli": 9000}), 403)
        await refused(alice.delete(f"{V1}/projects/team-a"), 403)
        await refused(alice.post(f"{V1}/projects", json={"name": "mine", "quota_milli": 1, "period": OPEN}), 403)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": ""}, "name"),
        ({"name": "a" * 21}, "name"),
        ({"name": "a--b"}, "name"),
        ({"quota_milli": -1}, "quota_milli"),
        ({"quota_milli": 10**30}, "quota_milli"),
        ({"quota_milli": "many"}, "quota_milli"),
        ({"quota_milli": 1.5}, "quota_milli"),
        ({"quota_milli": None}, "quota_milli"),
        ({"members": ["nobody"]}, "members"),
        ({"members": ["A"]}, "members[0]"),
        ({"members": "alice"}, "members"),
        ({"description": "a\0b"}, "description"),
        ({"quota": 1}, "quota"),
    ],
)
async def test_bad_projects(cluster: Cluster, change: dict[str, Any], where: str) -> None:
    body = {"name": "team-a", "quota_milli": 1000, "period": OPEN, **change}
    assert (await refused(cluster.admin.post(f"{V1}/projects", json=body), 422))["where"] == where
    assert await ok(cluster.admin.get(f"{V1}/projects")) == []


async def test_every_unknown_member_is_named(cluster: Cluster) -> None:
    body = {"name": "team-a", "quota_milli": 1000, "period": OPEN, "members": ["nobody", "no-one"]}
    response = await cluster.admin.post(f"{V1}/projects", json=body)
    assert [error["reason"] for error in problems(response)] == [
        "there is no user no-one",
        "there is no user nobody",
    ]


async def test_a_name_is_given_once(cluster: Cluster) -> None:
    await cluster.add_project()
    await refused(cluster.admin.post(f"{V1}/projects", json={"name": "team-a", "quota_milli": 1, "period": OPEN}), 409)


async def test_a_project_with_live_sessions_stays(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    await cluster.submit("demo")
    await refused(cluster.admin.delete(f"{V1}/projects/team-a"), 409)
    await ok(cluster.admin.delete(f"{V1}/sessions/demo", params={"project": "team-a"}))
    await ok(cluster.admin.delete(f"{V1}/projects/team-a"))


async def test_a_higher_quota_lets_a_waiting_session_run(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 500)
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False}))
    await cluster.submit("one")
    await cluster.submit("two")
    await cluster.settle()
    assert await cluster.states() == {"one": "RUNNING", "two": "PENDING"}
    assert (await ok(cluster.admin.get(f"{V1}/projects/team-a")))["used_milli"] == 500
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 1000}))
    await cluster.settle()
    assert await cluster.states() == {"one": "RUNNING", "two": "RUNNING"}


async def test_a_limit_holds_and_a_higher_one_lets_a_waiting_session_run(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 500)
    changed = await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"limit_milli": 1000}))
    assert changed["limit_milli"] == 1000
    for name in ("one", "two", "three"):
        await cluster.submit(name)
    await cluster.settle()
    assert await cluster.states() == {"one": "RUNNING", "two": "RUNNING", "three": "PENDING"}
    assert (await cluster.session("three"))["reason"].startswith("team-a holds 1 GPU of its limit of 1 GPU")
    changed = await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"limit_milli": None}))
    assert changed["limit_milli"] is None
    await cluster.settle()
    assert set((await cluster.states()).values()) == {"RUNNING"}


@pytest.mark.parametrize(
    ("before", "change", "where"),
    [
        ({}, {"limit_milli": 900}, "limit_milli"),
        ({"limit_milli": 2000}, {"quota_milli": 2001}, "quota_milli"),
        ({"limit_milli": 2000}, {"over_quota": False}, "over_quota"),
        ({"over_quota": False}, {"limit_milli": 2000}, "limit_milli"),
    ],
)
async def test_a_limit_and_a_quota_say_the_same(
    cluster: Cluster, before: dict[str, Any], change: dict[str, Any], where: str
) -> None:
    await cluster.add_node()
    await cluster.add_project("team-a", 1000)
    is_now = await ok(cluster.admin.patch(f"{V1}/projects/team-a", json=before))
    error = await refused(cluster.admin.patch(f"{V1}/projects/team-a", json=change), 422)
    assert error["where"] == where
    assert await ok(cluster.admin.get(f"{V1}/projects/team-a")) == is_now
    body = {"name": "new", "quota_milli": 1000, "period": OPEN, **before, **change}
    await refused(cluster.admin.post(f"{V1}/projects", json=body), 422)


async def test_images(cluster: Cluster) -> None:
    await cluster.add_image()
    async with await cluster.user("alice") as alice:
        assert [image["reference"] for image in await ok(alice.get(f"{V1}/images"))] == [
            "reservoir:5000/penstock/python:3.11"
        ]
        await refused(alice.post(f"{V1}/images", json={"name": "x", "tag": "1", "reference": "y"}), 403)
        await refused(alice.delete(f"{V1}/images/python:3.11"), 403)
    body = {"name": "python", "tag": "3.11", "reference": "other"}
    await refused(cluster.admin.post(f"{V1}/images", json=body), 409)
    await ok(cluster.admin.delete(f"{V1}/images/python:3.11"))
    await refused(cluster.admin.delete(f"{V1}/images/python:3.11"), 404)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": "Python"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"tag": ""}, "tag"),
        ({"tag": "a b"}, "tag"),
        ({"reference": "-v"}, "reference"),
        ({"reference": "a\0b"}, "reference"),
        ({"digest": "x"}, "digest"),
    ],
)
async def test_bad_images(cluster: Cluster, change: dict[str, Any], where: str) -> None:
    body = {"name": "python", "tag": "3.11", "reference": "reservoir:5000/x", **change}
    assert (await refused(cluster.admin.post(f"{V1}/images", json=body), 422))["where"] == where


@pytest.mark.parametrize("wanted", ["python", "python:3.11", "reservoir:5000/penstock/python:3.11"])
async def test_the_ways_to_name_an_image(cluster: Cluster, wanted: str) -> None:
    await cluster.add_image()
    await cluster.add_project()
    assert (await cluster.submit("demo", image=wanted))["image"] == "python:3.11"


async def test_a_name_alone_is_the_newest_tag(cluster: Cluster) -> None:
    await cluster.add_image()
    body = {"name": "python", "tag": "3.12", "reference": "reservoir:5000/penstock/python:3.12"}
    await ok(cluster.admin.post(f"{V1}/images", json=body))
    await cluster.add_project()
    assert (await cluster.submit("demo"))["image"] == "python:3.12"
