"""Domains: companies that share the cluster and do not see one another."""

from __future__ import annotations

import httpx
import pytest

from api.auth.policy import UserRole
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio


async def person(cluster: Cluster, name: str, domain: str, role: UserRole = UserRole.ADMIN) -> httpx.AsyncClient:
    body = {"name": name, "password": PASSWORD, "role": role, "domain": domain}
    await ok(cluster.admin.post(f"{V1}/users", json=body))
    page = cluster.client()
    await sign_in(page, name)
    return page


async def two_companies(cluster: Cluster) -> tuple[httpx.AsyncClient, httpx.AsyncClient]:
    for name in ("acme", "globex"):
        await ok(cluster.admin.post(f"{V1}/domains", json={"name": name}))
    return await person(cluster, "dora", "acme"), await person(cluster, "gil", "globex")


async def test_domains_come_and_go(cluster: Cluster) -> None:
    made = await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme", "description": "Rockets"}))
    assert (made["name"], made["description"], made["quota_milli"]) == ("acme", "Rockets", None)
    changed = await ok(cluster.admin.patch(f"{V1}/domains/acme", json={"description": "Planes"}))
    assert (changed["description"], changed["quota_milli"]) == ("Planes", None)
    await refused(cluster.admin.patch(f"{V1}/domains/nowhere", json={"quota_milli": 1000}), 404)
    await refused(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}), 409)
    await refused(cluster.admin.post(f"{V1}/domains", json={"name": "a--b"}), 422)
    await ok(cluster.admin.delete(f"{V1}/domains/acme"))
    await refused(cluster.admin.delete(f"{V1}/domains/acme"), 404)


async def test_a_domain_with_people_stays(cluster: Cluster) -> None:
    await two_companies(cluster)
    assert "1 users" in (await refused(cluster.admin.delete(f"{V1}/domains/acme"), 409))["reason"]
    await ok(cluster.admin.delete(f"{V1}/users/dora"))
    await ok(cluster.admin.delete(f"{V1}/domains/acme"))


async def test_its_administrator_sees_only_its_people(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    assert [user["name"] for user in await ok(dora.get(f"{V1}/users"))] == ["dora"]
    assert [row["name"] for row in await ok(dora.get(f"{V1}/domains"))] == ["acme"]
    for name in ("gil", "admin", "nobody"):
        await refused(dora.get(f"{V1}/users/{name}"), 404)
        await refused(dora.patch(f"{V1}/users/{name}", json={"password": "New1horse!"}), 404)
        await refused(dora.delete(f"{V1}/users/{name}"), 404)
        await refused(dora.get(f"{V1}/users/{name}/api-keys"), 404)
        await refused(dora.delete(f"{V1}/users/{name}/logins"), 404)


async def test_whom_its_administrator_makes_belongs_to_it(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    made = await ok(dora.post(f"{V1}/users", json={"name": "alice", "password": PASSWORD}))
    assert made["domain"] == "acme"
    body = {"name": "eve", "password": PASSWORD, "domain": "globex"}
    await refused(dora.post(f"{V1}/users", json=body), 403)
    await refused(dora.patch(f"{V1}/users/alice", json={"domain": "globex"}), 403)
    await refused(dora.patch(f"{V1}/users/alice", json={"domain": None}), 403)
    await refused(dora.patch(f"{V1}/users/dora", json={"domain": None}), 409)
    await ok(dora.patch(f"{V1}/users/alice", json={"role": "admin"}))
    assert (await ok(dora.get(f"{V1}/users/alice")))["role"] == "admin"


async def test_who_is_moved_leaves_what_the_domain_before_has(cluster: Cluster) -> None:
    dora, gil = await two_companies(cluster)
    await ok(dora.post(f"{V1}/users", json={"name": "alice", "password": PASSWORD}))
    for name, domain in (("rockets", "acme"), ("planes", "globex"), ("site", None)):
        project = {"name": name, "quota_milli": 1000, "period": {"ends_at": None}, "domain": domain}
        await ok(cluster.admin.post(f"{V1}/projects", json=project))
    for name in ("rockets", "site"):
        await ok(cluster.admin.patch(f"{V1}/projects/{name}", json={"members": ["alice"]}))
    await ok(cluster.admin.post(f"{V1}/resource-groups", json={"name": "big", "domain": "acme", "users": ["alice"]}))

    await ok(cluster.admin.patch(f"{V1}/users/alice", json={"domain": "globex"}))
    assert (await ok(dora.get(f"{V1}/projects/rockets")))["members"] == []
    assert (await ok(cluster.admin.get(f"{V1}/projects/site")))["members"] == ["alice"]
    assert (await ok(dora.patch(f"{V1}/resource-groups/big", json={"open": True})))["users"] == []
    await ok(gil.patch(f"{V1}/projects/planes", json={"members": ["alice"]}))

    await ok(cluster.admin.patch(f"{V1}/users/alice", json={"domain": None}))
    assert (await ok(gil.get(f"{V1}/projects/planes")))["members"] == []


async def test_who_has_sessions_in_the_domain_stays_in_it(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    alice = await person(cluster, "alice", "acme", UserRole.MEMBER)
    await cluster.add_image()
    body = {"name": "rockets", "quota_milli": 1000, "period": {"ends_at": None}, "members": ["alice"]}
    await ok(dora.post(f"{V1}/projects", json=body))
    session = {"name": "demo", "project": "rockets", "image": "python", "gpu_milli": 500}
    await ok(alice.post(f"{V1}/sessions", json=session))
    error = await refused(cluster.admin.patch(f"{V1}/users/alice", json={"domain": "globex"}), 409)
    assert error == {
        "where": "domain",
        "reason": "alice has live sessions in projects that another domain has: rockets",
        "hint": "delete the sessions first, then move the user",
    }
    assert (await ok(dora.get(f"{V1}/projects/rockets")))["members"] == ["alice"]
    await ok(alice.delete(f"{V1}/sessions/demo", params={"project": "rockets"}))
    await ok(cluster.admin.patch(f"{V1}/users/alice", json={"domain": "globex"}))


async def test_its_projects_are_its_own(cluster: Cluster) -> None:
    dora, gil = await two_companies(cluster)
    await ok(dora.post(f"{V1}/users", json={"name": "alice", "password": PASSWORD}))
    await cluster.add_project("site")
    body = {"name": "rockets", "quota_milli": 1000, "period": {"ends_at": None}, "members": ["alice"]}
    made = await ok(dora.post(f"{V1}/projects", json=body))
    assert made["domain"] == "acme"
    assert [project["name"] for project in await ok(dora.get(f"{V1}/projects"))] == ["rockets"]
    assert await ok(gil.get(f"{V1}/projects")) == []
    await refused(gil.get(f"{V1}/projects/rockets"), 404)
    await refused(gil.patch(f"{V1}/projects/rockets", json={"quota_milli": 1}), 404)
    await refused(dora.patch(f"{V1}/projects/site", json={"quota_milli": 1}), 404)


async def test_the_sites_affairs_are_not_its_administrators(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    await refused(dora.post(f"{V1}/domains", json={"name": "third"}), 403)
    await refused(dora.delete(f"{V1}/domains/globex"), 403)
    await refused(dora.post(f"{V1}/user-policies", json={"name": "students"}), 403)


async def test_its_nodes_are_those_of_its_groups(cluster: Cluster) -> None:
    dora, gil = await two_companies(cluster)
    for name in ("worker1", "worker2"):
        await cluster.add_node(name)
    body = {"name": "rockets", "domain": "acme", "nodes": ["worker1"]}
    await ok(cluster.admin.post(f"{V1}/resource-groups", json=body))
    assert [node["name"] for node in await ok(dora.get(f"{V1}/nodes"))] == ["worker1"]
    assert await ok(gil.get(f"{V1}/nodes")) == []
    assert len(await ok(cluster.admin.get(f"{V1}/nodes"))) == 2
    await ok(dora.get(f"{V1}/nodes/worker1"))
    await ok(dora.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}))
    for name in ("worker2", "nothing"):
        await refused(dora.get(f"{V1}/nodes/{name}"), 404)
        await refused(dora.patch(f"{V1}/nodes/{name}/mode", json={"mode": "maintenance"}), 404)
