"""Who may call what: default deny, cookies, keys, and the certificates of agents."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from sqlalchemy import select, update

from api.clock import now
from api.tables.logins import Login
from common.protocol import HEARTBEAT_PATH
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

PUBLIC = {"/", "/health", f"{V1}/health", f"{V1}/auth/login", "/login", "/docs", "/openapi.json", f"{V1}/apps/enter"}
UUID = "00000000-0000-4000-8000-000000000000"


def routes(cluster: Cluster) -> list[tuple[str, str]]:
    """Return every route of the application as method and path."""
    found: list[tuple[str, str]] = []
    for context in iter_route_contexts(cluster.app.routes):
        path = str(context.path)
        found += [(method, path) for method in sorted(context.methods or {"WEBSOCKET"})]
    return found


async def test_every_route_refuses_an_outsider(cluster: Cluster) -> None:
    found = routes(cluster)
    assert len(found) > 25
    assert {path for _, path in found} >= {*PUBLIC, HEARTBEAT_PATH, f"{V1}/sessions/{{name}}/exec"}
    async with cluster.client() as outsider:
        for method, path in found:
            if path in PUBLIC or method == "WEBSOCKET" or path.startswith("/static"):
                continue
            response = await outsider.request(method, re.sub(r"{\w+}", UUID[:8], path))
            assert response.status_code == 401, f"{method} {path}: {response.status_code}"


async def test_the_cookie_is_kept_from_scripts_and_other_sites(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        response = await guest.post(f"{V1}/auth/login", json={"name": "admin", "password": PASSWORD})
        assert response.json()["name"] == "admin"
        assert PASSWORD not in response.text
        cookie = response.headers["set-cookie"]
        assert cookie.startswith("__Host-penstock_session=")
        attributes = {attribute.strip() for attribute in cookie.split(";")[1:]}
        assert attributes == {"HttpOnly", "SameSite=lax", "Path=/", "Max-Age=43200", "Secure"}
        assert (await ok(guest.get(f"{V1}/auth/me")))["role"] == "admin"


async def test_a_cookie_that_another_host_can_have_set_is_none_of_ours(cluster: Cluster) -> None:
    """Without the prefix a page of a neighbouring name, or one without TLS, could plant it."""
    async with cluster.client() as guest:
        await sign_in(guest, "admin")
        secret = guest.cookies["__Host-penstock_session"]
    async with cluster.client(Cookie=f"penstock_session={secret}") as planted:
        await refused(planted.get(f"{V1}/auth/me"), 401)


async def test_without_tls_as_developers_serve_the_cookie_is_one_that_browsers_take(cluster: Cluster) -> None:
    async with cluster.client() as page:
        page.base_url = httpx.URL("http://127.0.0.1:56789")
        await sign_in(page, "admin")
        assert [*page.cookies] == ["penstock_session"]
        assert (await ok(page.get(f"{V1}/auth/me")))["name"] == "admin"
        await ok(page.post(f"{V1}/auth/logout"))
        assert [*page.cookies] == []


async def test_a_browser_is_told_to_forget_the_cookie_in_the_way_that_it_takes(cluster: Cluster) -> None:
    async with cluster.client() as page:
        await sign_in(page, "admin")
        gone = (await page.post(f"{V1}/auth/logout")).headers["set-cookie"]
        assert gone.startswith('__Host-penstock_session="";')
        for attribute in ("Secure", "Path=/", "Max-Age=0"):
            assert attribute in gone
        assert [*page.cookies] == []


@pytest.mark.parametrize(
    ("name", "password"), [("admin", "Wrong1horse!"), ("nobody", PASSWORD), ("ADMIN", PASSWORD), ("", ""), ("a", "b")]
)
async def test_wrong_logins_look_alike(cluster: Cluster, name: str, password: str) -> None:
    async with cluster.client() as guest:
        error = await refused(guest.post(f"{V1}/auth/login", json={"name": name, "password": password}), 401)
    assert error["reason"] == "name or password is wrong"


async def test_a_logout_ends_the_login(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        await sign_in(guest, "admin")
        cookie = guest.cookies["__Host-penstock_session"]
        await ok(guest.post(f"{V1}/auth/logout"))
    async with cluster.client(Cookie=f"__Host-penstock_session={cookie}") as thief:
        await refused(thief.get(f"{V1}/auth/me"), 401)


async def test_a_login_expires(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        await ok(guest.post(f"{V1}/auth/login", json={"name": "admin", "password": PASSWORD}))
        async with cluster.database.transaction() as db:
            await db.execute(update(Login).values(expires_at=now() - timedelta(seconds=1)))
        await refused(guest.get(f"{V1}/auth/me"), 401)


async def test_a_page_of_another_site_cannot_use_the_cookie(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        await ok(guest.post(f"{V1}/auth/login", json={"name": "admin", "password": PASSWORD}))
        await ok(guest.get(f"{V1}/auth/me", headers={"Origin": "https://penstock"}))
        await refused(guest.get(f"{V1}/auth/me", headers={"Origin": "https://evil.example"}), 403)


async def test_no_secret_is_in_the_database(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        await ok(guest.post(f"{V1}/auth/login", json={"name": "admin", "password": PASSWORD}))
        async with cluster.database.reading() as db:
            known = (await db.scalars(select(Login.fingerprint))).all()
        assert guest.cookies["__Host-penstock_session"] not in known


async def test_a_key_is_shown_once_and_can_be_revoked(cluster: Cluster) -> None:
    made = await ok(cluster.admin.post(f"{V1}/api-keys", json={"name": "laptop"}))
    assert made["key"].startswith(made["prefix"])
    listed = await ok(cluster.admin.get(f"{V1}/api-keys"))
    assert "laptop" in [key["name"] for key in listed]
    assert all("key" not in key for key in listed)
    async with cluster.client(made["key"]) as laptop:
        assert (await ok(laptop.get(f"{V1}/auth/me")))["name"] == "admin"
        await ok(cluster.admin.delete(f"{V1}/api-keys/{made['id']}"))
        await refused(laptop.get(f"{V1}/auth/me"), 401)
    await refused(cluster.admin.delete(f"{V1}/api-keys/{made['id']}"), 404)


async def test_a_key_of_another_user_cannot_be_revoked(cluster: Cluster) -> None:
    made = await ok(cluster.admin.post(f"{V1}/api-keys", json={"name": "laptop"}))
    async with await cluster.user("alice") as alice:
        await refused(alice.delete(f"{V1}/api-keys/{made['id']}"), 404)


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer", "Basic YWRtaW46eA==", "Bearer \xe4"])
async def test_other_authorization_is_refused(cluster: Cluster, header: str) -> None:
    async with cluster.client() as guest:
        response = await guest.get(f"{V1}/auth/me", headers={b"Authorization": header.encode("latin-1")})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"X-Client-Name": "worker1"}, 401),
        ({"X-Client-Verify": "NONE", "X-Client-Name": "worker1"}, 401),
        ({"X-Client-Verify": "FAILED:expired", "X-Client-Name": "worker1"}, 401),
        ({"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker2"}, 403),
    ],
)
async def test_only_the_node_itself_reports(cluster: Cluster, headers: dict[str, str], status: int) -> None:
    assert (await cluster.heartbeat("worker1")).status_code == 200
    body = heartbeat_body(cluster)
    async with cluster.client(**headers) as agent:
        await refused(agent.post(HEARTBEAT_PATH, json=body), status)


async def test_a_user_is_no_agent(cluster: Cluster) -> None:
    await refused(cluster.admin.post(HEARTBEAT_PATH, json=heartbeat_body(cluster)), 401)


async def test_headers_are_not_trusted_on_a_port(database_url: str) -> None:
    from tests.api.cluster import running_cluster

    async with running_cluster(database_url) as cluster:
        object.__setattr__(cluster.settings, "trust_client_headers", None)
        assert (await cluster.heartbeat()).status_code == 401


def heartbeat_body(cluster: Cluster) -> dict[str, Any]:
    from tests.fakes.heartbeats import node_info

    return {
        "name": "worker1",
        "address": "192.0.2.10",
        "port": 6001,
        "boot": "boot-1",
        "sequence": next(cluster.sequences),
        "node_info": node_info("worker1", 1).model_dump(mode="json"),
    }
