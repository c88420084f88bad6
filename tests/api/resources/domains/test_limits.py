"""Where the rights of a domain's administrators end: at roles, weights, policies, nodes and accounting of the site."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from api.auth.policy import UserRole
from api.resources.accounting import service as accounting
from api.tables.sessions import Session
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.resources.domains.test_domains import person, two_companies
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

FOR_EVER = {"ends_at": None}
LONG_AGO = datetime.now(UTC) - timedelta(days=1)


async def add_user(client: httpx.AsyncClient, name: str, **fields: Any) -> dict[str, Any]:
    return dict(await ok(client.post(f"{V1}/users", json={"name": name, "password": PASSWORD, **fields})))


async def add_project(client: httpx.AsyncClient, name: str, **fields: Any) -> dict[str, Any]:
    body = {"name": name, "quota_milli": 4000, "period": FOR_EVER, **fields}
    return dict(await ok(client.post(f"{V1}/projects", json=body)))


# --- roles -----------------------------------------------------------------------------------------------------------


async def test_it_makes_no_auditors(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    body = {"name": "eve", "password": PASSWORD, "role": "auditor"}
    error = await refused(dora.post(f"{V1}/users", json=body), 403)
    assert error["where"] == "role"
    await add_user(dora, "eve")
    assert (await refused(dora.patch(f"{V1}/users/eve", json={"role": "auditor"}), 403))["where"] == "role"
    assert (await ok(dora.patch(f"{V1}/users/eve", json={"role": "admin"})))["role"] == "admin"


async def test_an_auditor_whom_the_site_has_made_is_looked_after_by_it_all_the_same(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    await person(cluster, "audrey", "acme", UserRole.AUDITOR)
    await ok(dora.patch(f"{V1}/users/audrey", json={"role": "auditor", "email": "audrey@acme.example"}))
    await ok(dora.patch(f"{V1}/users/audrey", json={"disabled": True}))


async def test_an_auditor_of_a_domain_reads_nothing_of_the_others(cluster: Cluster) -> None:
    dora, gil = await two_companies(cluster)
    audrey = await person(cluster, "audrey", "acme", UserRole.AUDITOR)
    await add_project(gil, "planes")
    await add_project(dora, "rockets")
    assert [project["name"] for project in await ok(audrey.get(f"{V1}/projects"))] == ["rockets"]
    assert [user["name"] for user in await ok(audrey.get(f"{V1}/users"))] == ["audrey", "dora"]
    for path in ("scheduler/queue", "scheduler/cycle"):
        await refused(audrey.get(f"{V1}/{path}"), 403)
        await refused(dora.get(f"{V1}/{path}"), 403)


# --- weights ---------------------------------------------------------------------------------------------------------


async def test_it_weighs_its_projects_up_to_their_quotas(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    await add_project(dora, "rockets", over_quota_weight=4)
    body = {"name": "more", "quota_milli": 4000, "period": FOR_EVER, "over_quota_weight": 5}
    error = await refused(dora.post(f"{V1}/projects", json=body), 403)
    assert error["where"] == "over_quota_weight"
    for change in ({"over_quota_weight": 1_000_000}, {"over_quota_weight": 5}, {"quota_milli": 3999}):
        error = await refused(dora.patch(f"{V1}/projects/rockets", json=change), 403)
        assert error["where"] == "over_quota_weight"
        assert "4 GPUs" in error["hint"] or "3.999 GPUs" in error["hint"]
    await ok(dora.patch(f"{V1}/projects/rockets", json={"quota_milli": 2000, "over_quota_weight": 2}))
    for weight in (0, None):
        await ok(dora.patch(f"{V1}/projects/rockets", json={"over_quota_weight": weight}))


async def test_a_weight_that_the_site_has_given_stays_and_may_become_less(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    await add_project(dora, "rockets")
    await ok(cluster.admin.patch(f"{V1}/projects/rockets", json={"over_quota_weight": 100}))
    same = await ok(dora.patch(f"{V1}/projects/rockets", json={"over_quota_weight": 100, "description": "to Mars"}))
    assert (same["over_quota_weight"], same["description"]) == (100, "to Mars")
    await refused(dora.patch(f"{V1}/projects/rockets", json={"over_quota_weight": 101}), 403)
    await ok(dora.patch(f"{V1}/projects/rockets", json={"over_quota_weight": 50}))
    await refused(dora.patch(f"{V1}/projects/rockets", json={"over_quota_weight": 100}), 403)


async def test_only_the_site_says_how_long_sessions_are_spared(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    body = {"name": "more", "quota_milli": 4000, "period": FOR_EVER, "min_runtime_s": 60}
    assert (await refused(dora.post(f"{V1}/projects", json=body), 403))["where"] == "min_runtime_s"
    await add_project(dora, "rockets")
    await ok(cluster.admin.patch(f"{V1}/projects/rockets", json={"min_runtime_s": 600}))
    for value in (601, 0, None):
        error = await refused(dora.patch(f"{V1}/projects/rockets", json={"min_runtime_s": value}), 403)
        assert error["where"] == "min_runtime_s"
    same = await ok(dora.patch(f"{V1}/projects/rockets", json={"min_runtime_s": 600, "description": "to Mars"}))
    assert (same["min_runtime_s"], same["description"]) == (600, "to Mars")
    cleared = await ok(cluster.admin.patch(f"{V1}/projects/rockets", json={"min_runtime_s": None}))
    assert cleared["min_runtime_s"] is None


# --- policies --------------------------------------------------------------------------------------------------------


async def bound(cluster: Cluster) -> tuple[httpx.AsyncClient, httpx.AsyncClient]:
    """Let a policy of one session bind the domain acme; give its administrator and a member with a project."""
    dora, _gil = await two_companies(cluster)
    for name, most in (("one", 1), ("many", 99)):
        await ok(cluster.admin.post(f"{V1}/user-policies", json={"name": name, "max_sessions": most}))
    await cluster.add_image()
    alice = await person(cluster, "alice", "acme", UserRole.MEMBER)
    await add_project(dora, "rockets", members=["alice", "dora"])
    await ok(cluster.admin.patch(f"{V1}/domains/acme", json={"policy": "one"}))
    return dora, alice


async def submit(client: httpx.AsyncClient, name: str) -> httpx.Response:
    body = {"name": name, "project": "rockets", "image": "python", "gpu_milli": 500}
    return await client.post(f"{V1}/sessions", json=body)


async def test_the_policy_of_a_domain_binds_all_its_people(cluster: Cluster) -> None:
    dora, alice = await bound(cluster)
    for client in (dora, alice):
        assert (await submit(client, f"first-{client is dora}".lower())).status_code == 201
        error = await refused(submit(client, "second"), 409)
        assert "the policy one allows you 1 live sessions" in error["reason"]


async def test_whom_its_administrator_makes_is_bound_too(cluster: Cluster) -> None:
    dora, _alice = await bound(cluster)
    await person(cluster, "fresh", "acme", UserRole.MEMBER)
    await ok(dora.patch(f"{V1}/projects/rockets", json={"members": ["fresh"]}))
    async with cluster.client() as fresh:
        await ok(fresh.post(f"{V1}/auth/login", json={"name": "fresh", "password": PASSWORD}))
        fresh.headers["X-CSRF-Token"] = (await ok(fresh.get(f"{V1}/auth/csrf")))["csrf_token"]
        assert (await submit(fresh, "first")).status_code == 201
        assert (await submit(fresh, "second")).status_code == 409


async def test_it_takes_no_policy_away_and_gives_none(cluster: Cluster) -> None:
    dora, _alice = await bound(cluster)
    for name in ("dora", "alice"):
        await ok(cluster.admin.patch(f"{V1}/users/{name}", json={"policy": "one"}))
        for policy in (None, "many"):
            error = await refused(dora.patch(f"{V1}/users/{name}", json={"policy": policy}), 403)
            assert error["where"] == "policy"
        await ok(dora.patch(f"{V1}/users/{name}", json={"policy": "one"}))
    body = {"name": "fresh", "password": PASSWORD, "policy": "many"}
    assert (await refused(dora.post(f"{V1}/users", json=body), 403))["where"] == "policy"
    await refused(dora.patch(f"{V1}/domains/acme", json={"policy": None}), 403)


async def test_the_site_makes_an_exception_for_a_person(cluster: Cluster) -> None:
    _dora, alice = await bound(cluster)
    await ok(cluster.admin.patch(f"{V1}/users/alice", json={"policy": "many"}))
    assert [(await submit(alice, name)).status_code for name in ("first", "second")] == [201, 201]


async def test_a_policy_that_binds_a_domain_stays(cluster: Cluster) -> None:
    await bound(cluster)
    error = await refused(cluster.admin.delete(f"{V1}/user-policies/one"), 409)
    assert "acme" in error["reason"]
    assert (await refused(cluster.admin.patch(f"{V1}/domains/acme", json={"policy": "none"}), 422))["where"] == "policy"
    await ok(cluster.admin.patch(f"{V1}/domains/acme", json={"policy": None}))
    await ok(cluster.admin.delete(f"{V1}/user-policies/one"))


# --- nodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"domain": "globex"}, {"open": True}, {"users": ["admin"]}])
async def test_a_node_that_others_use_too_is_the_sites_to_drain(cluster: Cluster, other: dict[str, Any]) -> None:
    dora, _gil = await two_companies(cluster)
    for name in ("worker1", "worker2"):
        await cluster.add_node(name)
    group = {"name": "rockets", "domain": "acme", "nodes": ["worker1", "worker2"]}
    await ok(cluster.admin.post(f"{V1}/resource-groups", json=group))
    await ok(cluster.admin.post(f"{V1}/resource-groups", json={"name": "other", "nodes": ["worker2"], **other}))
    await ok(dora.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}))
    await ok(dora.get(f"{V1}/nodes/worker2"))
    for mode in ("draining", "maintenance", "active"):
        error = await refused(dora.patch(f"{V1}/nodes/worker2/mode", json={"mode": mode}), 403)
        assert error["reason"] == "worker2 is not of your domain alone"
    await refused(dora.delete(f"{V1}/nodes/worker2/unknown-containers"), 403)
    await ok(cluster.admin.patch(f"{V1}/nodes/worker2/mode", json={"mode": "maintenance"}))


# --- accounting ------------------------------------------------------------------------------------------------------


async def ran(cluster: Cluster, client: httpx.AsyncClient, project: str) -> None:
    """Let a session of a project have run for an hour, and end."""
    body = {"name": "demo", "project": project, "image": "python", "gpu_milli": 500}
    made = await ok(client.post(f"{V1}/sessions", json=body))
    async with cluster.database.transaction() as db:
        [session] = [row for row in await db.scalars(select(Session)) if str(row.id) == made["id"]]
        await accounting.begin(db, session.id, LONG_AGO)
        await accounting.end(db, session.id, LONG_AGO + timedelta(hours=1))
    await ok(client.delete(f"{V1}/sessions/demo", params={"project": project}))


async def rows(client: httpx.AsyncClient, by: str) -> list[tuple[str, bool, float]]:
    report = await ok(client.get(f"{V1}/accounting", params={"by": by}))
    return [(row["name"], row["deleted"], row["session_seconds"]) for row in report["rows"]]


async def test_a_domain_of_an_old_name_shows_nothing_of_the_old_one(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    await cluster.add_image()
    await add_project(dora, "rockets", members=["dora"])
    await ran(cluster, dora, "rockets")
    assert await rows(dora, "domain") == [("acme", False, 3600.0)]
    await ok(cluster.admin.delete(f"{V1}/projects/rockets"))
    await ok(cluster.admin.delete(f"{V1}/users/dora"))
    await ok(cluster.admin.delete(f"{V1}/domains/acme"))

    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    dora = await person(cluster, "dora", "acme")
    for by in ("domain", "project", "user"):
        assert await rows(dora, by) == []
    await add_project(dora, "rockets", members=["dora"])
    await ran(cluster, dora, "rockets")
    for by, name in (("domain", "acme"), ("project", "rockets"), ("user", "dora")):
        assert await rows(dora, by) == [(name, False, 3600.0)]
        assert await rows(cluster.admin, by) == [(name, False, 3600.0), (name, True, 3600.0)]


async def test_a_project_of_an_old_name_is_told_from_the_old_one(cluster: Cluster) -> None:
    dora, _gil = await two_companies(cluster)
    await cluster.add_image()
    manager = await person(cluster, "mona", "acme", UserRole.MEMBER)
    for _ in range(2):
        await add_project(dora, "rockets", managers=["mona"])
        await ran(cluster, manager, "rockets")
        [(name, deleted, seconds)] = [row for row in await rows(manager, "project") if not row[1]]
        assert (name, deleted, seconds) == ("rockets", False, 3600.0)
        await ok(dora.delete(f"{V1}/projects/rockets"))
    assert await rows(dora, "project") == [("rockets", True, 3600.0)] * 2
