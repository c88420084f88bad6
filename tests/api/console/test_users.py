"""The pages of users: a new one who has to change the password, one who may not sign in, and one who is gone.

What else is changed of one, and a password in place of a forgotten one, is on a page of its own.
"""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest
from sqlalchemy import update

from api.auth.policy import UserRole
from api.tables.users import User, UserSource
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.api.console.conftest import PAGE
from tests.api.console.test_languages import unmarked
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

FORM = {"name": "alice", "password": PASSWORD, "email": "alice@site.example", "role": "member"}
PART = {"HX-Request": "true"}
SHOWN = re.compile(r'name="shown" value="([^"]*)"')
NEW = "Other2horse!"


async def test_a_user_is_made_shut_out_let_in_and_deleted(ready: Cluster, browser: httpx.AsyncClient) -> None:
    made = await browser.post("/users", data=FORM, headers=PART)
    assert (made.status_code, made.headers["hx-trigger"]) == (204, "refresh")
    user = await ok(ready.admin.get(f"{V1}/users/alice"))
    assert (user["role"], user["email"], user["must_change_password"]) == ("member", "alice@site.example", True)
    async with ready.client() as guest:
        for disabled, name in (("true", "Enable"), ("false", "Disable")):
            assert (await browser.post("/users/alice", data={"disabled": disabled}, headers=PART)).status_code == 204
            assert f">{name}</button>" in (await browser.get("/users?q=ALICE")).text
            if disabled == "true":
                login = {"name": "alice", "password": PASSWORD}
                await refused(guest.post(f"{V1}/auth/login", json=login), 403)
        await sign_in(guest, "alice")
    assert (await browser.post("/users/alice/delete", headers=PART)).status_code == 204
    assert "Nobody is called like that." in (await browser.get("/users?q=alice")).text


async def test_what_is_wrong_is_said_of_its_field(ready: Cluster, browser: httpx.AsyncClient) -> None:
    answer = await browser.post("/users", data={**FORM, "password": "short"}, headers=PART)
    assert [told["pointer"] for told in answer.json()["errors"]] == ["/password"]
    assert "short" not in answer.text
    answer = await browser.post("/users", data={**FORM, "email": "nobody"}, headers=PART)
    assert [told["pointer"] for told in answer.json()["errors"]] == ["/email"]
    await refused(ready.admin.get(f"{V1}/users/alice"), 404)


async def test_a_user_is_changed_on_a_page_of_its_own(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ok(ready.admin.post(f"{V1}/user-policies", json={"name": "students"}))
    await ok(ready.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await browser.post("/users", data=FORM, headers=PART)
    assert '<a href="/users/alice"' in (await browser.get("/users")).text
    steps = (
        {"role": "admin", "email": "al@site.example", "policy": "students", "domain": "acme"},
        {"role": "member", "email": "", "policy": "", "domain": ""},
    )
    for step in steps:
        shown = unescape(SHOWN.findall((await browser.get("/users/alice")).text)[0])
        changed = await browser.post("/users/alice", data={"shown": shown, **step}, headers=PART)
        assert (changed.status_code, changed.headers["hx-redirect"]) == (204, "/users")
        user = await ok(ready.admin.get(f"{V1}/users/alice"))
        assert {name: user[name] or "" for name in step} == step
    assert (await browser.get("/users/nobody")).status_code == 404


async def test_of_a_user_what_another_has_changed_meanwhile_stays(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ok(ready.admin.post(f"{V1}/user-policies", json={"name": "students"}))
    await browser.post("/users", data=FORM, headers=PART)
    shown = unescape(SHOWN.findall((await browser.get("/users/alice")).text)[0])
    await ok(ready.admin.patch(f"{V1}/users/alice", json={"policy": "students", "disabled": True}))
    form = {"shown": shown, "role": "auditor", "email": "alice@site.example", "policy": "", "domain": ""}
    assert (await browser.post("/users/alice", data=form, headers=PART)).status_code == 204
    user = await ok(ready.admin.get(f"{V1}/users/alice"))
    assert (user["role"], user["policy"], user["disabled"]) == ("auditor", "students", True)


async def test_a_forgotten_password_is_replaced_and_has_to_be_changed(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    async with await ready.user("alice") as alice:
        wrong = await browser.post("/users/alice/password", data={"password": "short"}, headers=PART)
        assert [told["pointer"] for told in wrong.json()["errors"]] == ["/password"]
        await ok(alice.get(f"{V1}/auth/me"))
        made = await browser.post("/users/alice/password", data={"password": NEW}, headers=PART)
        assert (made.status_code, made.headers["hx-redirect"]) == (204, "/users")
        await refused(alice.get(f"{V1}/auth/me"), 401)
    async with ready.client() as guest:
        await refused(guest.post(f"{V1}/auth/login", json={"name": "alice", "password": PASSWORD}), 401)
        known = await ok(guest.post(f"{V1}/auth/login", json={"name": "alice", "password": NEW}))
        assert known["must_change_password"]


async def test_who_signs_in_by_the_directory_is_given_no_password(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await browser.post("/users", data=FORM, headers=PART)
    assert 'hx-post="/users/alice/password"' in (await browser.get("/users/alice")).text
    async with ready.database.transaction() as db:
        await db.execute(update(User).where(User.name == "alice").values(source=UserSource.LDAP))
    assert "/password" not in (await browser.get("/users/alice")).text


async def test_who_looks_after_a_domain_changes_its_people_and_what_is_the_sites_stays(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ok(ready.admin.post(f"{V1}/user-policies", json={"name": "students"}))
    await ok(ready.admin.post(f"{V1}/domains", json={"name": "acme"}))
    async with await ready.user("boss", UserRole.ADMIN) as boss:
        await ok(ready.admin.patch(f"{V1}/users/boss", json={"domain": "acme"}))
        await browser.post("/users", data=FORM, headers=PART)
        assert (await boss.get("/users/alice", headers=PAGE)).status_code == 404
        await ok(ready.admin.patch(f"{V1}/users/alice", json={"domain": "acme", "policy": "students"}))
        page = (await boss.get("/users/alice", headers=PAGE)).text
        assert [name for name in ("role", "email", "policy", "domain") if f'name="{name}"' in page] == ["role", "email"]
        assert 'value="auditor"' not in page
        form = {"shown": unescape(SHOWN.findall(page)[0]), "role": "member", "email": "", "policy": "", "domain": ""}
        assert (await boss.post("/users/alice", data=form, headers=PART)).status_code == 204
        user = await ok(ready.admin.get(f"{V1}/users/alice"))
        await ok(ready.admin.patch(f"{V1}/users/alice", json={"role": "auditor"}))
        assert '<option value="auditor" selected>' in (await boss.get("/users/alice", headers=PAGE)).text
    assert (user["email"], user["policy"], user["domain"]) == (None, "students", "acme")


@pytest.mark.usefixtures("marked")
async def test_no_text_of_the_page_goes_past_translation(browser: httpx.AsyncClient) -> None:
    await browser.post("/users", data=FORM, headers=PART)
    assert unmarked((await browser.get("/users/alice")).text) <= {"alice", "admin"}
