"""Resource groups: from their creation to their end, what is in them, and who sees and changes them."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update

from api.auth.policy import UserRole
from api.resources.groups import service
from api.resources.projects import service as projects
from api.resources.users import service as users
from api.tables.nodes import Gpu, Node
from api.tables.projects import Project
from api.tables.sessions import Kind, Session
from common.errors import InputError
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio

GROUPS = f"{V1}/resource-groups"


async def add_node(cluster: Cluster, name: str, model: str = "", switch: str = "", gpus: int = 2) -> None:
    devices = [
        Gpu(index=index, uuid=f"GPU-{name}-{index}", model=model, memory_mib=16384, simulated=True)
        for index in range(gpus if model else 0)
    ]
    async with cluster.database.transaction() as db:
        db.add(Node(name=name, address="192.0.2.1", port=6001, switch=switch, gpus=devices))


async def create(cluster: Cluster, name: str, **fields: Any) -> dict[str, Any]:
    return dict(await ok(cluster.admin.post(GROUPS, json={"name": name, **fields})))


async def project_row(cluster: Cluster, name: str) -> Project:
    async with cluster.database.reading() as db:
        return next(project for project in await projects.every(db) if project.name == name)


async def test_a_group_from_its_creation_to_its_end(cluster: Cluster) -> None:
    await cluster.user("alice")
    await cluster.add_project()
    await add_node(cluster, "n1", "Tesla V100")
    body: dict[str, Any] = {
        "name": "vision",
        "description": "Cameras",
        "purpose": "training",
        "nodes": ["n1"],
        "switch": "leaf1",
        "users": ["alice"],
        "projects": ["team-a"],
    }
    made = await create(cluster, **body)
    assert {key: made[key] for key in body} == body
    assert (made["open"], made["domain"], made["gpu_model"], made["region"]) == (False, None, "", "")
    assert await ok(cluster.admin.get(GROUPS)) == [made]
    changed = await ok(cluster.admin.patch(f"{GROUPS}/vision", json={"open": True, "users": [], "nodes": []}))
    assert changed == {**made, "open": True, "users": [], "nodes": [], "present": []}
    await ok(cluster.admin.delete(f"{GROUPS}/vision"))
    await refused(cluster.admin.get(f"{GROUPS}/vision"), 404)


async def test_nodes_are_named_or_selected_and_new_ones_join_by_themselves(cluster: Cluster) -> None:
    await add_node(cluster, "n1", "Tesla V100", "leaf1")
    await add_node(cluster, "n2", "Tesla P100", "leaf2")
    await create(cluster, "a", gpu_model="v100")
    await create(cluster, "b", gpu_model="p100", nodes=["n1"])
    await create(cluster, "one-switch", switch="leaf1")
    await add_node(cluster, "n3", "Tesla V100", "leaf3")
    await add_node(cluster, "n4")
    async with cluster.database.reading() as db:
        assert await service.by_node(db) == {"n1": ("a", "b", "one-switch"), "n2": ("b",), "n3": ("a",)}
    present = {group["name"]: group["present"] for group in await ok(cluster.admin.get(GROUPS))}
    assert present == {"a": ["n1", "n3"], "b": ["n1", "n2"], "one-switch": ["n1"]}


async def test_where_a_session_may_run(cluster: Cluster) -> None:
    async with await cluster.user("alice"):
        await cluster.add_project("team-a", 1000, "alice")
        await create(cluster, "a", users=["alice"])
        await create(cluster, "b")
        await create(cluster, "all", open=True)
        project = await project_row(cluster, "team-a")
        async with cluster.database.reading() as db:
            user_id, permissions = (await users.get(db, "alice")).id, await service.permissions(db)
            assert service.allowed(permissions, user_id, project, Kind.TRAINING) == (("a", "all"), False)
            assert service.allowed(permissions, user_id, project, Kind.TRAINING, "a") == (("a",), True)
            for wanted in ("b", "unknown"):
                with pytest.raises(InputError) as error:
                    service.allowed(permissions, user_id, project, Kind.TRAINING, wanted)
                assert error.value.problems[0].where == "group"


async def test_a_project_keeps_to_its_groups(cluster: Cluster) -> None:
    """Row C10: apart for training and for interactive work."""
    await create(cluster, "night")
    await create(cluster, "day", open=True)
    await cluster.add_project()
    groups = {"training_group": "night", "interactive_group": "day"}
    shown = await ok(cluster.admin.patch(f"{V1}/projects/team-a", json=groups))
    assert {key: shown[key] for key in groups} == groups
    project = await project_row(cluster, "team-a")
    async with cluster.database.reading() as db:
        permissions = await service.permissions(db)
        assert service.allowed(permissions, project.id, project, Kind.TRAINING) == (("night",), True)
        assert service.allowed(permissions, project.id, project, Kind.INTERACTIVE) == (("day",), True)
        with pytest.raises(InputError, match="run in the resource group night only"):
            service.allowed(permissions, project.id, project, Kind.TRAINING, "day")
    problem = await refused(cluster.admin.delete(f"{GROUPS}/night"), 409)
    assert problem["reason"] == "these projects keep to night: team-a"
    shown = await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"training_group": None}))
    assert (shown["training_group"], shown["interactive_group"]) == (None, "day")
    await ok(cluster.admin.delete(f"{GROUPS}/night"))
    problem = await refused(cluster.admin.patch(f"{V1}/projects/team-a", json={"training_group": "night"}), 422)
    assert problem["where"] == "training_group"


async def test_a_session_waits_for_the_group_that_its_project_keeps_to(cluster: Cluster) -> None:
    """Row C10: whatever is free elsewhere; interactive work of the same project goes there."""
    await cluster.add_image()
    for node in ("worker1", "worker2"):
        await cluster.add_node(node, 1)
    await create(cluster, "night", nodes=["worker1"])
    await create(cluster, "day", nodes=["worker2"])
    await cluster.add_project("team-a", 4000)
    groups = {"training_group": "night", "interactive_group": "day"}
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json=groups))
    for name, interactive in (("first", False), ("second", False), ("desk", True)):
        await cluster.submit(name, 1000, interactive=interactive)
    await cluster.settle()
    assert await cluster.states() == {"first": "RUNNING", "second": "PENDING", "desk": "RUNNING"}
    assert (await cluster.session("first"))["node"] == "worker1"
    assert (await cluster.session("desk"))["node"] == "worker2"
    await ok(cluster.admin.delete(f"{V1}/sessions/first", params={"project": "team-a"}))
    await cluster.settle()
    assert (await cluster.session("second"))["node"] == "worker1"


async def test_members_see_only_the_groups_that_they_may_use(cluster: Cluster) -> None:
    async with await cluster.user("alice") as alice, await cluster.user("bob", UserRole.AUDITOR) as auditor:
        await cluster.add_project("team-a", 1000, "alice")
        await cluster.add_project("team-b", 1000)
        await create(cluster, "a", projects=["team-a", "team-b"], users=["bob"])
        await create(cluster, "b", users=["bob"])
        await create(cluster, "all", open=True)
        shown = {group["name"]: group for group in await ok(alice.get(GROUPS))}
        assert list(shown) == ["a", "all"]
        assert (shown["a"]["projects"], shown["a"]["users"]) == (["team-a"], []), "others are not named to her"
        await refused(alice.get(f"{GROUPS}/b"), 404)
        everything = {group["name"]: group for group in await ok(auditor.get(GROUPS))}
        assert everything["a"]["projects"] == ["team-a", "team-b"]
        assert list(everything) == ["a", "all", "b"]


async def test_only_administrators_change_groups(cluster: Cluster) -> None:
    async with await cluster.user("alice") as alice:
        await create(cluster, "all", open=True)
        await refused(alice.post(GROUPS, json={"name": "mine"}), 403)
        await refused(alice.patch(f"{GROUPS}/all", json={"open": False}), 403)
        await refused(alice.delete(f"{GROUPS}/all"), 403)


async def test_a_group_that_a_live_session_asks_for_stays(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    await create(cluster, "all", open=True)
    session = await cluster.submit("demo")
    async with cluster.database.transaction() as db:
        await db.execute(update(Session).where(Session.id == UUID(session["id"])).values(group="all"))
    problem = await refused(cluster.admin.delete(f"{GROUPS}/all"), 409)
    assert problem["reason"] == "1 live session asks for all"
    await ok(cluster.admin.delete(f"{V1}/sessions/demo", params={"project": "team-a"}))
    await ok(cluster.admin.delete(f"{GROUPS}/all"))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": "A"}, "name"),
        ({"name": "a" * 21}, "name"),
        ({"nodes": ["nowhere"]}, "nodes"),
        ({"nodes": ["a b"]}, "nodes[0]"),
        ({"users": ["nobody"]}, "users"),
        ({"projects": ["nothing"]}, "projects"),
        ({"gpu_model": "a\0b"}, "gpu_model"),
        ({"switch": None}, "switch"),
        ({"open": "perhaps"}, "open"),
        ({"gpus": 4}, "gpus"),
        ({"domain": "nowhere"}, "domain"),
    ],
)
async def test_bad_groups(cluster: Cluster, change: dict[str, Any], where: str) -> None:
    assert (await refused(cluster.admin.post(GROUPS, json={"name": "a", **change}), 422))["where"] == where
    assert await ok(cluster.admin.get(GROUPS)) == []


async def test_a_group_moves_to_a_domain_and_back(cluster: Cluster) -> None:
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await create(cluster, "a")
    for domain in ("acme", None):
        assert (await ok(cluster.admin.patch(f"{GROUPS}/a", json={"domain": domain})))["domain"] == domain
        assert (await ok(cluster.admin.patch(f"{GROUPS}/a", json={"purpose": "tests"})))["domain"] == domain


async def test_a_group_with_others_in_it_does_not_move_to_a_domain(cluster: Cluster) -> None:
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await cluster.add_project("team-b", 0)
    await create(cluster, "a", projects=["team-b"])
    assert (await refused(cluster.admin.patch(f"{GROUPS}/a", json={"domain": "acme"}), 422))["where"] == "projects"
    assert (await refused(cluster.admin.patch(f"{GROUPS}/a", json={"domain": "none"}), 422))["where"] == "domain"
    await ok(cluster.admin.patch(f"{V1}/projects/team-b", json={"training_group": "a"}))
    error = await refused(cluster.admin.patch(f"{GROUPS}/a", json={"projects": [], "domain": "acme"}), 409)
    assert (error["where"], "team-b" in error["reason"]) == ("domain", True)
    assert (await ok(cluster.admin.get(f"{GROUPS}/a")))["domain"] is None


async def test_who_looks_after_a_domain_moves_no_group(cluster: Cluster) -> None:
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await create(cluster, "a", domain="acme")
    async with await cluster.user("dora", UserRole.ADMIN) as dora:
        await ok(cluster.admin.patch(f"{V1}/users/dora", json={"domain": "acme"}))
        await refused(dora.patch(f"{GROUPS}/a", json={"domain": None}), 403)
        await ok(dora.patch(f"{GROUPS}/a", json={"purpose": "tests"}))


async def test_null_changes_nothing(cluster: Cluster) -> None:
    await create(cluster, "a")
    for field in ("description", "nodes", "open", "users"):
        assert (await refused(cluster.admin.patch(f"{GROUPS}/a", json={field: None}), 422))["where"] == field


async def test_lists_are_changed_by_name_also_at_once(cluster: Cluster) -> None:
    for name in ("alice", "bob"):
        await cluster.user(name)
        await cluster.add_project(f"team-{name}", 0)
        await add_node(cluster, f"n-{name}", "Tesla V100")
    await create(cluster, name="vision")
    path = f"{GROUPS}/vision"
    added = {"users": ["alice", "bob"], "projects": ["team-alice", "team-bob"], "nodes": ["n-alice", "n-bob"]}
    changes = [{f"add_{field}": [name]} for field, names in added.items() for name in names]
    await asyncio.gather(*(ok(cluster.admin.patch(path, json=change)) for change in changes))
    shown = await ok(cluster.admin.get(path))
    assert {field: shown[field] for field in added} == added
    for _ in range(2):
        shown = await ok(
            cluster.admin.patch(path, json={f"remove_{field}": names[:1] for field, names in added.items()})
        )
        assert {field: shown[field] for field in added} == {field: names[1:] for field, names in added.items()}
    for field, names in added.items():
        await refused(cluster.admin.patch(path, json={field: names, f"add_{field}": names}), 422)
        await refused(cluster.admin.patch(path, json={f"add_{field}": names, f"remove_{field}": names}), 422)


async def test_a_name_is_given_once(cluster: Cluster) -> None:
    await create(cluster, "a")
    await refused(cluster.admin.post(GROUPS, json={"name": "a"}), 409)


async def test_two_users_who_change_places_use_the_other_s_group(ready: Cluster) -> None:
    """Nothing is asked between the two changes, and after both there is as much of everything as before."""
    await create(ready, "red", nodes=["worker1"])
    await create(ready, "blue", nodes=["worker1"])
    numbers, users = count(), {name: await ready.user(name) for name in ("alice", "bob")}
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": [*users]}))

    async def let(red: str, blue: str) -> None:
        for group, user in (("red", red), ("blue", blue)):
            await ok(ready.admin.patch(f"{GROUPS}/{group}", json={"users": [user]}))

    async def may(user: str, group: str) -> bool:
        body = {
            "name": f"{user}-{group}-{next(numbers)}",
            "project": "team-a",
            "image": "python",
            "gpu_milli": 500,
            "group": group,
        }
        answer = await users[user].post(f"{V1}/sessions", json=body)
        assert answer.is_success or "there is no resource group" in answer.text
        return answer.is_success

    async def used() -> set[tuple[str, str]]:
        return {(user, group) for user in users for group in ("red", "blue") if await may(user, group)}

    await let(red="alice", blue="bob")
    assert await used() == {("alice", "red"), ("bob", "blue")}
    await let(red="bob", blue="alice")
    assert await used() == {("bob", "red"), ("alice", "blue")}
