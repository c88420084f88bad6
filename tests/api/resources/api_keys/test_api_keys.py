"""API keys: what each scope is good for, and that none outlives or exceeds the key that made it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from api.clock import now
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.api.endpoints.routes import Route, routes_of, status_of

pytestmark = pytest.mark.anyio

SCOPES = ("read", "submit", "all")
WITHOUT_USER = ("/health", "/auth/login")


def least(route: Route) -> str:
    """Return the narrowest scope of a key with which a route may be called."""
    enters = route.method == "WEBSOCKET" or route.path.endswith("/apps/authorize")
    if route.method == "GET" and not enters:
        return "read"
    if enters or route.path.startswith(f"{V1}/sessions"):
        return "submit"
    # a key stays as it is, so nothing happens
    return "read" if route.path.endswith("/logout") else "all"


async def key_of(cluster: Cluster, **request: Any) -> httpx.AsyncClient:
    made = await ok(cluster.admin.post(f"{V1}/api-keys", json={"name": "tests", **request}))
    return cluster.client(made["key"])


async def test_every_route_may_be_called_with_a_key_of_its_scope_and_wider_ones(cluster: Cluster) -> None:
    wrong = []
    routes = [route for route in routes_of(cluster.app) if route.path.startswith(V1)]
    for scope in SCOPES:
        async with await key_of(cluster, scope=scope) as client:
            for route in routes:
                if route.path.endswith(WITHOUT_USER):
                    continue
                refused = await status_of(cluster, client, route) == 403
                if refused != (SCOPES.index(least(route)) > SCOPES.index(scope)):
                    wrong.append(f"{scope}: {route}: {'refused' if refused else 'let in'}")
    assert len(routes) > 60
    assert wrong == []


async def test_a_key_says_what_it_lacks(cluster: Cluster) -> None:
    async with await key_of(cluster, scope="read") as reader:
        error = await refused(reader.post(f"{V1}/sessions", json={}), 403)
    assert error["reason"] == "a key with the scope read may not submit sessions"
    assert "submit" in error["hint"]


async def test_a_scope_limits_also_what_a_request_does_beside_its_route(cluster: Cluster) -> None:
    """A higher priority than is usual is a right of its own."""
    await cluster.add_image()
    await cluster.add_project()
    body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500, "priority": 90}
    async with await key_of(cluster, scope="submit") as submitter:
        await ok(submitter.post(f"{V1}/sessions", json=body))
        await ok(submitter.get(f"{V1}/sessions/demo", params={"project": "team-a"}))
        await ok(submitter.delete(f"{V1}/sessions/demo", params={"project": "team-a"}))


@pytest.mark.parametrize("scope", ["read", "submit"])
async def test_a_narrow_key_makes_no_keys(cluster: Cluster, scope: str) -> None:
    async with await key_of(cluster, scope=scope) as client:
        for wanted in SCOPES:
            await refused(client.post(f"{V1}/api-keys", json={"name": "more", "scope": wanted}), 403)


async def test_keys_show_their_scope(cluster: Cluster) -> None:
    await key_of(cluster, scope="read")
    await key_of(cluster)
    listed = await ok(cluster.admin.get(f"{V1}/api-keys"))
    assert [key["scope"] for key in listed] == ["all", "read", "all"]


async def test_no_key_outlives_the_key_that_made_it(cluster: Cluster) -> None:
    async with await key_of(cluster, days=2) as short:
        [end] = [key["expires_at"] for key in await ok(short.get(f"{V1}/api-keys")) if key["expires_at"]]
        assert (await ok(short.post(f"{V1}/api-keys", json={"name": "same"})))["expires_at"] == end
        day = await ok(short.post(f"{V1}/api-keys", json={"name": "day", "days": 1}))
        assert datetime.fromisoformat(day["expires_at"]) < now() + timedelta(days=1)
        for days in (2, 3, 3650):
            error = await refused(short.post(f"{V1}/api-keys", json={"name": "long", "days": days}), 422)
            assert error["where"] == "days"
            assert end[:10] in error["reason"]


async def test_no_key_is_left_of_those_that_a_revoked_key_made(cluster: Cluster) -> None:
    async with await key_of(cluster) as parent:
        made = await ok(parent.post(f"{V1}/api-keys", json={"name": "child"}))
        async with cluster.client(made["key"]) as child:
            assert (await ok(child.post(f"{V1}/api-keys", json={"name": "grandchild"})))["made_by"] == made["id"]
            other = await key_of(cluster)
            listed = {key["name"]: key for key in await ok(cluster.admin.get(f"{V1}/api-keys"))}
            assert (await ok(cluster.admin.delete(f"{V1}/api-keys/{made['made_by']}")))["with_it"] == 2
            await refused(child.get(f"{V1}/auth/me"), 401)
            await ok(other.get(f"{V1}/auth/me"))
            await other.aclose()
    left = {key["name"] for key in await ok(cluster.admin.get(f"{V1}/api-keys"))}
    assert set(listed) - left == {"child", "grandchild"}


async def test_keys_of_a_login_stay_when_it_ends(cluster: Cluster) -> None:
    async with cluster.client() as page:
        await sign_in(page, "admin")
        made = await ok(page.post(f"{V1}/api-keys", json={"name": "for ever"}))
        await ok(page.post(f"{V1}/auth/logout"))
    assert made["made_by"] is None
    async with cluster.client(made["key"]) as client:
        await ok(client.get(f"{V1}/auth/me"))


async def test_who_has_signed_in_makes_keys_for_as_long_as_wanted(cluster: Cluster) -> None:
    async with cluster.client() as page:
        await sign_in(page, "admin")
        assert (await ok(page.post(f"{V1}/api-keys", json={"name": "for ever"})))["expires_at"] is None
        assert (await ok(page.post(f"{V1}/api-keys", json={"name": "long", "days": 3650})))["expires_at"]


async def test_an_unknown_scope_is_refused(cluster: Cluster) -> None:
    error = await refused(cluster.admin.post(f"{V1}/api-keys", json={"name": "x", "scope": "write"}), 422)
    assert error["where"] == "scope"
