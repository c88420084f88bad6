"""The page of users: a new one who has to change the password, one who may not sign in, and one who is gone."""

from __future__ import annotations

import httpx
import pytest

from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

FORM = {"name": "alice", "password": PASSWORD, "email": "alice@site.example", "role": "member"}
PART = {"HX-Request": "true"}


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
