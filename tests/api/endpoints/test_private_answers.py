"""What is private stays so: in no cache, for no page of others, and of nothing more than one person needs."""

from __future__ import annotations

import pytest

from tests.api.cluster import V1, Cluster, ok, refused
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

PRIVATE = ("auth/me", "users", "projects", "accounting", "settings", "nodes/none", "nothing-here")


@pytest.mark.parametrize("path", PRIVATE)
async def test_no_answer_is_kept_on_the_way(cluster: Cluster, path: str) -> None:
    answer = await cluster.admin.get(f"{V1}/{path}")
    assert answer.headers.get_list("Cache-Control") == ["no-store"]
    async with cluster.client() as guest:
        assert (await guest.get(f"{V1}/{path}")).headers["Cache-Control"] == "no-store"


async def test_lists_are_kept_by_who_asks_and_asked_for_again(cluster: Cluster) -> None:
    for path in ("nodes", "sessions"):
        answer = await cluster.admin.get(f"{V1}/{path}")
        assert answer.headers.get_list("Cache-Control") == ["private, no-cache"]


async def test_files_of_our_pages_may_be_kept(cluster: Cluster) -> None:
    assert "Cache-Control" not in (await cluster.admin.get("/static/docs.css")).headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "https://penstock:9443"},
        {"Origin": "http://penstock"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_no_page_of_others_signs_its_visitor_in(cluster: Cluster, headers: dict[str, str]) -> None:
    body = {"name": "admin", "password": PASSWORD}
    async with cluster.client() as browser:
        told = await refused(browser.post(f"{V1}/auth/login", json=body, headers=headers), 403)
        assert "may not use this login" in told["reason"]
        assert not browser.cookies
        await ok(browser.post(f"{V1}/auth/login", json=body, headers={"Origin": "https://penstock"}))


async def test_one_person_has_so_many_keys_and_no_more(cluster: Cluster) -> None:
    cluster.app.state.settings = cluster.settings.model_copy(update={"keys_per_user": 3})
    keys = [await ok(cluster.admin.post(f"{V1}/api-keys", json={"name": f"k{number}"})) for number in range(2)]
    told = await refused(cluster.admin.post(f"{V1}/api-keys", json={"name": "more"}), 409)
    assert told["reason"] == "you have 3 keys already"
    await ok(cluster.admin.delete(f"{V1}/api-keys/{keys[0]['id']}"))
    await ok(cluster.admin.post(f"{V1}/api-keys", json={"name": "more"}))
