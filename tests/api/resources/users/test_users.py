"""Users, their names and passwords, and who may manage them."""

from __future__ import annotations

from typing import cast

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import QueuePool

from api.auth import passwords
from api.auth.policy import UserRole
from api.tables.users import User
from tests.api.cluster import V1, Cluster, ok, refused
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["abc", "a" * 20, "a-b", "a1-2", "123"])
async def test_names_that_are_taken(cluster: Cluster, name: str) -> None:
    made = await ok(cluster.admin.post(f"{V1}/users", json={"name": name, "password": PASSWORD}))
    assert made["name"] == name
    assert made["role"] == "member"
    assert PASSWORD not in str(made)
    assert "hash" not in str(made)


@pytest.mark.parametrize(
    "name", ["ab", "a" * 21, "a--b", "-ab", "ab-", "Abc", "a_b", "a b", "äbc", "", "abc\n", None, 7]
)
async def test_names_that_are_refused(cluster: Cluster, name: object) -> None:
    error = await refused(cluster.admin.post(f"{V1}/users", json={"name": name, "password": PASSWORD}), 422)
    assert error["where"] == "name"


@pytest.mark.parametrize("password", ["Aa1!aaaa", "a1~" + "b" * 17, "a1<>?^&*", "A1234567#"])
async def test_passwords_that_are_taken(cluster: Cluster, password: str) -> None:
    await ok(cluster.admin.post(f"{V1}/users", json={"name": "alice", "password": password}))
    async with cluster.client() as guest:
        await ok(guest.post(f"{V1}/auth/login", json={"name": "alice", "password": password}))


@pytest.mark.parametrize(
    "password",
    [
        "Aa1!aaa",
        "Aa1!" + "a" * 17,
        "Aa1!aaa(",
        "abcdefgh",
        "12345678",
        "!!!!!!!!",
        "abcd1234",
        "abcd!!!!",
        "1234!!!!",
        "",
    ],
)
async def test_passwords_that_are_refused(cluster: Cluster, password: str) -> None:
    error = await refused(cluster.admin.post(f"{V1}/users", json={"name": "alice", "password": password}), 422)
    assert error["where"] == "password"
    assert await ok(cluster.admin.get(f"{V1}/users")) != []
    assert [user["name"] for user in await ok(cluster.admin.get(f"{V1}/users"))] == ["admin"]


async def test_a_name_is_given_once(cluster: Cluster) -> None:
    body = {"name": "alice", "password": PASSWORD}
    await ok(cluster.admin.post(f"{V1}/users", json=body))
    assert (await refused(cluster.admin.post(f"{V1}/users", json=body), 409))["where"] == "name"


async def test_only_administrators_manage_users(cluster: Cluster) -> None:
    async with await cluster.user("alice") as alice:
        await refused(alice.get(f"{V1}/users"), 403)
        await refused(alice.post(f"{V1}/users", json={"name": "bob", "password": PASSWORD}), 403)
        await refused(alice.delete(f"{V1}/users/admin"), 403)
        await refused(alice.put(f"{V1}/users/alice/password", json={"password": "New1horse!"}), 403)


async def test_a_new_password_ends_the_old_logins(cluster: Cluster) -> None:
    await cluster.user("alice")
    async with cluster.client() as guest:
        await ok(guest.post(f"{V1}/auth/login", json={"name": "alice", "password": PASSWORD}))
        await ok(cluster.admin.put(f"{V1}/users/alice/password", json={"password": "New1horse!"}))
        await refused(guest.get(f"{V1}/auth/me"), 401)
        await refused(guest.post(f"{V1}/auth/login", json={"name": "alice", "password": PASSWORD}), 401)
        await ok(guest.post(f"{V1}/auth/login", json={"name": "alice", "password": "New1horse!"}))


async def test_a_deleted_user_is_gone(cluster: Cluster) -> None:
    async with await cluster.user("alice") as alice:
        await cluster.add_project("team-a", 1000, "alice")
        await ok(cluster.admin.delete(f"{V1}/users/alice"))
        await refused(alice.get(f"{V1}/auth/me"), 401)
    assert (await ok(cluster.admin.get(f"{V1}/projects/team-a")))["members"] == []
    await refused(cluster.admin.delete(f"{V1}/users/alice"), 404)


async def test_administrators_cannot_lock_themselves_out(cluster: Cluster) -> None:
    await refused(cluster.admin.delete(f"{V1}/users/admin"), 409)
    async with await cluster.user("second", UserRole.ADMIN) as second:
        await ok(second.delete(f"{V1}/users/admin"))
        await refused(second.delete(f"{V1}/users/second"), 409)


async def test_a_user_with_live_sessions_stays(cluster: Cluster) -> None:
    await cluster.add_image()
    async with await cluster.user("alice") as alice:
        await cluster.add_project("team-a", 1000, "alice")
        body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500}
        await ok(alice.post(f"{V1}/sessions", json=body))
        assert "1 live session" in (await refused(cluster.admin.delete(f"{V1}/users/alice"), 409))["reason"]
        await ok(alice.delete(f"{V1}/sessions/demo", params={"project": "team-a"}))
    await ok(cluster.admin.delete(f"{V1}/users/alice"))
    rows = await ok(cluster.admin.get(f"{V1}/sessions", params={"all": True}))
    assert [(row["name"], row["user"]) for row in rows] == [("demo", "alice")], "the record stays"


async def test_a_crowd_that_signs_in_holds_no_connection_to_the_database(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    async def matches(_known: str | None, _password: str) -> bool:
        held.append(cast("QueuePool", cluster.database.engine.pool).checkedout())
        return False

    monkeypatch.setattr(passwords, "matches", matches)
    async with cluster.client() as guest:
        await refused(guest.post(f"{V1}/auth/login", json={"name": "admin", "password": PASSWORD}), 401)
    assert held == [0]


async def test_errors_of_the_database_do_not_quote_secrets(cluster: Cluster) -> None:
    with pytest.raises(IntegrityError) as caught:
        async with cluster.database.transaction() as db:
            db.add(User(name="admin", role=UserRole.ADMIN, password_hash="hash-of-a-secret"))
    assert "hash-of-a-secret" not in str(caught.value)
