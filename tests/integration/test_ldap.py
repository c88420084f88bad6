"""People whom a directory knows: a real slapd with TLS, and the API that asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.auth import directory
from api.auth.policy import UserRole
from api.resources.logins import throttle
from api.settings import Settings
from common.errors import UnavailableError
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster, sign_in
from tests.installed import PASSWORD
from tests.integration.agent.conftest import Authority, authority, free_port, make_authority  # noqa: F401
from tests.integration.slapd import BASE, PEOPLE, SECRET, Slapd, login, searching, settings_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def cluster(slapd: Slapd, database_url: str) -> AsyncIterator[Cluster]:
    async with running_cluster(database_url, **settings_of(slapd)) as running:
        yield running


async def test_the_first_login_makes_the_user(cluster: Cluster) -> None:
    async with cluster.client() as page:
        made = await sign_in(page, "carol", SECRET)
        assert (made["name"], made["role"], made["source"]) == ("carol", "member", "ldap")
        again = await sign_in(page, "carol", SECRET)
        assert again["id"] == made["id"]
        await ok(page.post(f"{V1}/api-keys", json={"name": "x"}))


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("carol", "wrong"),
        ("carol", ""),
        ("nobody", SECRET),
        ("nobody", ""),
        ("*", SECRET),
        ("car*", SECRET),
        ("carol)(uid=*", SECRET),
        ("carol,ou=people", SECRET),
        ("Carol", SECRET),
        ("carol ", SECRET),
        ("ab", SECRET),
    ],
)
@pytest.mark.parametrize("how", ["template", "search"])
async def test_what_is_not_right_is_refused_alike(
    slapd: Slapd, database_url: str, tmp_path: Path, name: str, password: str, how: str
) -> None:
    changes = searching(tmp_path) if how == "search" else {}
    async with running_cluster(database_url, **settings_of(slapd, **changes)) as cluster, cluster.client() as page:
        error = await refused(login(page, name, password), 401)
        assert error["reason"] == "name or password is wrong"
        assert [user["name"] for user in await ok(cluster.admin.get(f"{V1}/users"))] == ["admin"]


async def test_groups_of_the_directory_become_roles(cluster: Cluster, slapd: Slapd) -> None:
    async with cluster.client() as page:
        assert (await sign_in(page, "chief", SECRET))["role"] == "admin"
        assert (await sign_in(page, "audrey", SECRET))["role"] == "auditor"
        group = f"dn: cn=auditors,ou=groups,{BASE}\nchangetype: modify\n"
        slapd.modify(f"{group}replace: member\nmember: uid=carol,{PEOPLE}\n")
        try:
            assert (await sign_in(page, "audrey", SECRET))["role"] == "member", "at the next login"
        finally:
            slapd.modify(f"{group}replace: member\nmember: uid=audrey,{PEOPLE}\n")


async def test_a_user_of_the_site_is_never_looked_for_in_the_directory(cluster: Cluster) -> None:
    """Somebody in the directory with the name of the site's administrator stays outside."""
    async with cluster.client() as page:
        await refused(login(page, "admin", SECRET), 401)
        await sign_in(page, "admin", PASSWORD)


async def test_the_directory_keeps_the_password(cluster: Cluster) -> None:
    async with cluster.client() as page:
        await sign_in(page, "carol", SECRET)
        await refused(cluster.admin.patch(f"{V1}/users/carol", json={"password": PASSWORD}), 409)
        await refused(login(page, "carol", PASSWORD), 401)
        await ok(cluster.admin.patch(f"{V1}/users/carol", json={"disabled": True}))
        await refused(login(page, "carol", SECRET), 403)


async def test_a_directory_that_is_away(cluster: Cluster, slapd: Slapd) -> None:
    slapd.stop()
    try:
        async with cluster.client() as page:
            for _ in range(throttle.FREE + 2):
                error = await refused(login(page, "carol"), 503)
                assert "the directory does not answer" in error["reason"]
            await sign_in(page, "admin", PASSWORD)
    finally:
        slapd.start()
    async with cluster.client() as page:
        await sign_in(page, "carol", SECRET)


async def ask(slapd: Slapd, name: str, password: str = SECRET, **changes: Any) -> UserRole | None:
    found = await directory.person(Settings(**settings_of(slapd, **changes)), name, password)
    return found.role if found else None


async def test_people_are_found_by_a_search(slapd: Slapd, tmp_path: Path) -> None:
    how = searching(tmp_path)
    assert await ask(slapd, "carol", **how) is UserRole.MEMBER
    assert await ask(slapd, "chief", **how) is UserRole.ADMIN
    assert await ask(slapd, "carol", "wrong", **how) is None
    assert await ask(slapd, "twice", **how) is None, "two people of one name"
    for hostile in ("*", "c*", "carol)(objectClass=*", "\0", "\\2a"):
        assert await ask(slapd, hostile, **how) is None


async def test_the_sites_own_account_that_is_refused_is_no_wrong_password(slapd: Slapd, tmp_path: Path) -> None:
    how = searching(tmp_path)
    how["ldap_bind_password_file"].write_text("wrong")
    with pytest.raises(UnavailableError):
        await ask(slapd, "carol", **how)


async def test_a_search_that_is_refused_is_no_wrong_name(slapd: Slapd, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        await ask(slapd, "carol", **searching(tmp_path) | {"ldap_search_base": f"ou=nowhere,{BASE}"})


@pytest.mark.parametrize("hostile", ["carol,ou=people", "carol+uid=chief", "chief,ou=people,dc=example,dc=org#", "*"])
async def test_a_name_cannot_lead_to_another_entry(slapd: Slapd, hostile: str) -> None:
    assert await ask(slapd, hostile) is None


async def test_start_tls(slapd: Slapd) -> None:
    url = f"ldap://127.0.0.1:{slapd.port}"
    assert await ask(slapd, "carol", ldap_url=url) is UserRole.MEMBER
    assert await ask(slapd, "carol", "wrong", ldap_url=url) is None


@pytest.mark.parametrize("scheme", ["ldap", "ldaps"])
async def test_a_server_with_a_certificate_of_somebody_else_hears_no_password(
    slapd: Slapd, tmp_path: Path, scheme: str
) -> None:
    port = slapd.port if scheme == "ldap" else slapd.tls_port
    other = make_authority(tmp_path / "other")
    with pytest.raises(UnavailableError):
        await ask(slapd, "carol", ldap_url=f"{scheme}://127.0.0.1:{port}", ldap_ca=other.ca)


@pytest.mark.parametrize("scheme", ["ldap", "ldaps"])
async def test_a_server_under_another_name_hears_no_password(slapd: Slapd, scheme: str) -> None:
    port = slapd.port if scheme == "ldap" else slapd.tls_port
    with pytest.raises(UnavailableError):
        await ask(slapd, "carol", ldap_url=f"{scheme}://localhost:{port}")


async def test_a_server_that_does_not_encrypt_hears_no_password(authority: Authority, tmp_path: Path) -> None:  # noqa: F811
    plain = Slapd(tmp_path / "plain", authority, free_port(), free_port(), encrypts=False)
    plain.fill()
    plain.start()
    try:
        with pytest.raises(UnavailableError):
            await ask(plain, "carol", ldap_url=f"ldap://127.0.0.1:{plain.port}")
    finally:
        plain.stop()
