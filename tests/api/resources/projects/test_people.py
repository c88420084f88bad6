"""Managers and members of projects: what each may do, and that outsiders see nothing. Rows E4 and E6."""

from __future__ import annotations

from typing import Any

import pytest

from api.auth.policy import UserRole
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio

TEAM = f"{V1}/projects/team-a"


async def people(cluster: Cluster, **change: list[str]) -> tuple[list[str], list[str]]:
    shown = await ok(cluster.admin.patch(TEAM, json=change))
    return shown["managers"], shown["members"]


async def test_the_lists_of_people(cluster: Cluster) -> None:
    for name in ("alice", "bob", "carol"):
        await cluster.user(name)
    await cluster.add_project()
    assert await people(cluster, members=["carol", "bob", "bob"]) == ([], ["bob", "carol"])
    assert await people(cluster, managers=["bob"]) == (["bob"], ["carol"]), "who is in both is a manager"
    assert await people(cluster, members=["bob", "alice"]) == (["bob"], ["alice"])
    assert await people(cluster, managers=["alice"], members=["bob"]) == (["alice"], ["bob"])
    assert await people(cluster, managers=[]) == ([], ["bob"])
    assert await people(cluster, members=[]) == ([], [])


async def test_people_come_and_go_one_by_one(cluster: Cluster) -> None:
    for name in ("alice", "bob", "carol"):
        await cluster.user(name)
    await cluster.add_project()
    for _ in range(2):
        assert await people(cluster, add_members=["alice", "bob"]) == ([], ["alice", "bob"])
    assert await people(cluster, add_managers=["bob"], add_members=["carol"]) == (["bob"], ["alice", "carol"])
    for _ in range(2):
        assert await people(cluster, remove_members=["alice"], remove_managers=["bob"]) == ([], ["carol"])
    both: list[dict[str, list[str]]] = [
        {"members": ["alice"], "add_members": ["bob"]},
        {"managers": [], "remove_managers": ["bob"]},
        {"add_members": ["bob"], "remove_members": ["bob"]},
        {"add_members": ["nobody"]},
    ]
    for change in both:
        await refused(cluster.admin.patch(TEAM, json=change), 422)
    assert await people(cluster) == ([], ["carol"])


async def test_a_manager_adds_members_and_no_managers(cluster: Cluster) -> None:
    await cluster.user("bob")
    await cluster.add_project()
    async with await cluster.user("alice") as alice:
        await people(cluster, managers=["alice"])
        assert (await ok(alice.patch(TEAM, json={"add_members": ["bob"]})))["members"] == ["bob"]
        for change in ({"add_managers": ["bob"]}, {"remove_managers": ["alice"]}):
            await refused(alice.patch(TEAM, json=change), 403)
        assert (await ok(alice.patch(TEAM, json={"remove_members": ["bob"]})))["members"] == []


async def test_a_manager_changes_the_members_and_nothing_else(cluster: Cluster) -> None:
    await cluster.user("bob")
    await cluster.add_project()
    async with await cluster.user("alice") as alice:
        await people(cluster, managers=["alice"])
        changed = await ok(alice.patch(TEAM, json={"members": ["bob"]}))
        assert (changed["managers"], changed["members"]) == (["alice"], ["bob"])
        changes: list[dict[str, Any]] = [
            {"quota_milli": 9000},
            {"members": [], "quota_milli": 9000},
            {"managers": ["alice", "bob"]},
            {"period": {"ends_at": None}},
            {"over_quota": False},
            {"interactive_limit_s": 0},
        ]
        for change in changes:
            await refused(alice.patch(TEAM, json=change), 403)
        await refused(alice.delete(TEAM), 403)
        assert (await ok(alice.get(TEAM)))["members"] == ["bob"]


async def test_who_is_no_manager_changes_nobody(cluster: Cluster) -> None:
    async with await cluster.user("alice") as member, await cluster.user("bob") as manager_elsewhere:
        await cluster.add_project("team-a", 1000, "alice")
        await cluster.add_project("team-b", 1000)
        await ok(cluster.admin.patch(f"{V1}/projects/team-b", json={"managers": ["bob"]}))
        await refused(member.patch(TEAM, json={"members": []}), 403)
        await refused(manager_elsewhere.patch(TEAM, json={"members": []}), 404)
        await refused(manager_elsewhere.get(TEAM), 404)
        assert (await ok(member.get(TEAM)))["members"] == ["alice"]


async def test_an_auditor_sees_all_and_changes_nothing(cluster: Cluster) -> None:
    async with await cluster.user("eve", UserRole.AUDITOR) as auditor:
        await cluster.add_project()
        assert [row["name"] for row in await ok(auditor.get(f"{V1}/projects"))] == ["team-a"]
        await refused(auditor.patch(TEAM, json={"members": []}), 403)
        await refused(auditor.delete(TEAM), 403)


async def test_a_user_who_is_gone_is_in_no_project(cluster: Cluster) -> None:
    await cluster.user("alice")
    await cluster.add_project()
    await people(cluster, managers=["alice"])
    await ok(cluster.admin.delete(f"{V1}/users/alice"))
    assert (await ok(cluster.admin.get(TEAM)))["managers"] == []
