"""What administrators change of users: passwords, roles, keys; and who stays able to administer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from api.auth.policy import UserRole
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

NEW = "New1horse!"


async def test_only_administrators_change_passwords(cluster: Cluster) -> None:
    async with await cluster.user("alice") as alice:
        for password in (NEW, PASSWORD):
            await refused(alice.patch(f"{V1}/users/alice", json={"password": password}), 403)
        await refused(alice.post(f"{V1}/auth/password", json={"password": NEW}), 403)
        with structlog.testing.capture_logs() as lines:
            await ok(cluster.admin.patch(f"{V1}/users/alice", json={"password": NEW}))
    audits = [line for line in lines if line["event"] == "audit"]
    assert [(line["what"], line["user"], line["by"]) for line in audits] == [("password changed", "alice", "admin")]
    assert NEW not in str(lines)


@pytest.mark.parametrize("method", ["patch", "put"])
async def test_a_new_password_ends_logins_and_revokes_keys(cluster: Cluster, method: str) -> None:
    async with await cluster.user("alice") as alice, cluster.client() as page:
        await sign_in(page, "alice")
        path = f"{V1}/users/alice" + ("/password" if method == "put" else "")
        await ok(cluster.admin.request(method.upper(), path, json={"password": NEW}))
        await refused(alice.get(f"{V1}/auth/me"), 401)
        await refused(page.get(f"{V1}/auth/me"), 401)
        await sign_in(page, "alice", NEW)
    await ok(cluster.admin.get(f"{V1}/auth/me"))


async def test_a_given_password_is_replaced_at_the_first_login(cluster: Cluster) -> None:
    body = {"name": "alice", "password": PASSWORD, "must_change_password": True}
    await ok(cluster.admin.post(f"{V1}/users", json=body))
    async with cluster.client() as page:
        assert (await sign_in(page, "alice"))["must_change_password"]
        error = await refused(page.post(f"{V1}/api-keys", json={"name": "x"}), 403)
        assert "change your password first" in error["reason"]
        await refused(page.get(f"{V1}/projects"), 403)
        await refused(page.post(f"{V1}/auth/password", json={"password": PASSWORD}), 422)
        await refused(page.post(f"{V1}/auth/password", json={"password": "weak"}), 422)
        assert not (await ok(page.post(f"{V1}/auth/password", json={"password": NEW})))["must_change_password"]
        await ok(page.get(f"{V1}/projects"))
        await refused(page.post(f"{V1}/auth/password", json={"password": PASSWORD}), 403)
    async with cluster.client() as page:
        await sign_in(page, "alice", NEW)


async def test_a_disabled_user_is_out_until_enabled_again(cluster: Cluster) -> None:
    async with await cluster.user("alice") as alice, cluster.client() as page:
        await sign_in(page, "alice")
        await ok(cluster.admin.patch(f"{V1}/users/alice", json={"disabled": True}))
        await refused(alice.get(f"{V1}/auth/me"), 401)
        await refused(page.get(f"{V1}/auth/me"), 401)
        body = {"name": "alice", "password": PASSWORD}
        error = await refused(page.post(f"{V1}/auth/login", json=body), 403)
        assert "disabled" in error["reason"]
        await refused(page.post(f"{V1}/auth/login", json=body | {"password": NEW}), 401)
        await ok(cluster.admin.patch(f"{V1}/users/alice", json={"disabled": False}))
        await ok(alice.get(f"{V1}/auth/me"))


@pytest.mark.parametrize("role", ["auditor", "admin", "member"])
async def test_a_role_counts_from_the_next_request_on(cluster: Cluster, role: str) -> None:
    async with await cluster.user("alice") as alice:
        await ok(cluster.admin.patch(f"{V1}/users/alice", json={"role": role}))
        assert (await alice.get(f"{V1}/users")).status_code == (403 if role == "member" else 200)
        body = {"name": "bobby", "password": PASSWORD}
        assert (await alice.post(f"{V1}/users", json=body)).status_code == (201 if role == "admin" else 403)


@pytest.mark.parametrize("change", [{"role": "member"}, {"disabled": True}, {"domain": "acme"}])
async def test_somebody_stays_who_can_administer_the_site(cluster: Cluster, change: dict[str, Any]) -> None:
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    error = await refused(cluster.admin.patch(f"{V1}/users/admin", json=change), 409)
    assert "yourself" in error["reason"]
    async with await cluster.user("second", UserRole.ADMIN) as second:
        await ok(second.patch(f"{V1}/users/admin", json=change))
        await ok(second.get(f"{V1}/users"))
        assert (await refused(second.delete(f"{V1}/users/second"), 409))["where"] == "name"


async def test_two_administrators_who_delete_each_other_leave_one(cluster: Cluster) -> None:
    async with await cluster.user("second", UserRole.ADMIN) as second:
        answers = await asyncio.gather(cluster.admin.delete(f"{V1}/users/second"), second.delete(f"{V1}/users/admin"))
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses[0] == 200
        assert statuses[1] in (401, 409), "the other is gone already, or is the last one"
        left = [(await client.get(f"{V1}/users")).status_code for client in (cluster.admin, second)]
        assert sorted(left) == [200, 401]


async def test_an_address_for_mail_is_optional(cluster: Cluster) -> None:
    await cluster.user("alice")
    changed = await ok(cluster.admin.patch(f"{V1}/users/alice", json={"email": "alice@example.org"}))
    assert changed["email"] == "alice@example.org"
    assert (await ok(cluster.admin.patch(f"{V1}/users/alice", json={"email": None})))["email"] is None
    for wrong in ("alice", "a@", "@b", "a b@c", "a\u0000@b", "x" * 250 + "@example.org"):
        assert (await refused(cluster.admin.patch(f"{V1}/users/alice", json={"email": wrong}), 422))["where"] == "email"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"role": "root"}, "role"),
        ({"role": None}, "role"),
        ({"password": None}, "password"),
        ({"name": "bob"}, "name"),
        ({"domain": "nowhere"}, "domain"),
        ({"policy": "nothing"}, "policy"),
        ({"role_source": "ldap"}, "role_source"),
        ({"directory_id": "entry-7"}, "directory_id"),
        ({"directory_id": None}, "directory_id"),
    ],
)
async def test_a_bad_change_names_its_field(cluster: Cluster, change: dict[str, Any], field: str) -> None:
    await cluster.user("alice")
    assert (await refused(cluster.admin.patch(f"{V1}/users/alice", json=change), 422))["where"] == field


async def test_administrators_see_and_revoke_the_keys_of_users(cluster: Cluster) -> None:
    async with await cluster.user("alice") as alice:
        [key] = await ok(cluster.admin.get(f"{V1}/users/alice/api-keys"))
        assert "key" not in key
        await refused(alice.get(f"{V1}/users/alice/api-keys"), 403)
        await ok(cluster.admin.delete(f"{V1}/users/alice/api-keys/{key['id']}"))
        await refused(alice.get(f"{V1}/auth/me"), 401)
        await refused(cluster.admin.delete(f"{V1}/users/alice/api-keys/{key['id']}"), 404)


async def test_administrators_sign_users_out(cluster: Cluster) -> None:
    async with await cluster.user("alice") as alice, cluster.client() as page:
        await sign_in(page, "alice")
        await ok(cluster.admin.delete(f"{V1}/users/alice/logins"))
        await refused(page.get(f"{V1}/auth/me"), 401)
        await ok(alice.get(f"{V1}/auth/me"))


@pytest.mark.parametrize("days", [0, -1, 3651, 10**30, "x"])
async def test_a_key_holds_for_a_sensible_time(cluster: Cluster, days: object) -> None:
    error = await refused(cluster.admin.post(f"{V1}/api-keys", json={"name": "x", "days": days}), 422)
    assert error["where"] == "days"
