"""Rate at which an account may change things where each change is a line that is kept."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from api.auth.policy import UserRole
from api.endpoints.change_rate import HOUR_S, ChangeRate
from api.resources.logins.throttle import FREE
from common.errors import ThrottledError
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.api.endpoints.routes import open_websocket
from tests.api.resources.audit.log import lines
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

FEW = 3
AGAIN_S = HOUR_S / FEW


def flip(caller: httpx.AsyncClient, text: str) -> Any:
    return caller.patch(f"{V1}/projects/vision", json={"description": text})


@pytest.fixture
async def bob(audited: Cluster) -> httpx.AsyncClient:
    """Another administrator with a key; an account may make few changes from here on."""
    await audited.add_project("vision")
    bob = await audited.user("bob", UserRole.ADMIN)
    audited.app.state.change_rate = ChangeRate(FEW, audited.clock)
    return bob


async def test_who_makes_changes_without_end_is_slowed_down(audited: Cluster, bob: httpx.AsyncClient) -> None:
    for number in range(FEW):
        await ok(flip(bob, f"{number}"))
    answer = await flip(bob, "too much")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1200")
    assert (await ok(bob.get(f"{V1}/projects/vision")))["description"] == f"{FEW - 1}", "reads cost nothing"
    audited.clock.passed = AGAIN_S - 1
    told = await refused(flip(bob, "too much"), 429)
    assert "wait 1 s" in told["hint"]
    audited.clock.passed = AGAIN_S
    await ok(flip(bob, "later"))
    await refused(flip(bob, "too much"), 429)
    audited.clock.passed += 10 * HOUR_S
    for number in range(FEW):
        await ok(flip(bob, f"{number}"))
    await refused(flip(bob, "no more than an hour is saved up"), 429)
    told_of = [line["status"] for line in await lines(audited, user="bob", object="projects/vision")]
    assert (told_of.count(200), told_of.count(429)) == (2 * FEW + 1, 4), "what was refused is told, too"


async def test_nobody_is_slowed_down_by_others(audited: Cluster, bob: httpx.AsyncClient) -> None:
    for _ in range(FEW + 1):
        await flip(bob, "again")
    await ok(flip(audited.admin, "by somebody else"))


async def test_looks_at_the_audit_log_count_for_they_are_told(audited: Cluster, bob: httpx.AsyncClient) -> None:
    for _ in range(FEW):
        await ok(bob.get(f"{V1}/audit"))
    await refused(bob.get(f"{V1}/audit"), 429)
    await refused(flip(bob, "again"), 429)


async def test_terminals_count(audited: Cluster, bob: httpx.AsyncClient) -> None:
    headers = {"Authorization": bob.headers["Authorization"]}
    for _ in range(FEW + 1):
        query = {"project": "vision", "command": json.dumps(["sh"])}
        await open_websocket(audited.app, f"{V1}/sessions/nothing/exec", headers, query)
    told = [line["status"] for line in await lines(audited, user="bob", action="session_enter")]
    assert told == [429, *[404] * FEW]


async def test_a_key_that_is_used_up_can_be_revoked_by_who_signs_in(audited: Cluster, bob: httpx.AsyncClient) -> None:
    for _ in range(FEW + 1):
        await flip(bob, "again")
    async with audited.client() as browser:
        await sign_in(browser, "bob")
        [key] = await ok(browser.get(f"{V1}/api-keys"))
        await ok(browser.delete(f"{V1}/api-keys/{key['id']}"))
    await refused(flip(bob, "again"), 401)


async def test_logins_are_changes_and_none_too_many_counts_as_a_wrong_password(
    audited: Cluster, bob: httpx.AsyncClient
) -> None:
    login = {"name": "bob", "password": PASSWORD}
    async with audited.client() as browser:
        for _ in range(FEW):
            await ok(browser.post(f"{V1}/auth/login", json=login))
        for _ in range(FREE + 2):
            told = await refused(browser.post(f"{V1}/auth/login", json=login), 429)
            assert "changes that it may make" in told["reason"]
        audited.clock.passed = AGAIN_S
        await ok(browser.post(f"{V1}/auth/login", json=login))


async def test_where_no_log_is_kept_nothing_is_slowed_down(cluster: Cluster) -> None:
    await cluster.add_project("vision")
    cluster.app.state.change_rate = ChangeRate(1, cluster.clock)
    cluster.app.state.settings = cluster.settings.model_copy(update={"audit_folder": None})
    for _ in range(3):
        await ok(flip(cluster.admin, "again"))


async def test_the_site_says_how_many(cluster: Cluster) -> None:
    rate: ChangeRate = cluster.app.state.change_rate
    account = (await ok(cluster.admin.get(f"{V1}/auth/me")))["id"]
    for _ in range(cluster.settings.changes_per_hour):
        rate.take(account, signed_in=True)
    with pytest.raises(ThrottledError):
        rate.take(account, signed_in=True)
