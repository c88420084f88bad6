"""The pages of volumes: what projects store, who uses it, and what managers and administrators do with it."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from api.console import volumes as pages
from api.endpoints.access import SEEN_HEADER
from api.tables.volumes import Volume
from tests.api.cluster import V1, Cluster, ok
from tests.api.console.conftest import PAGE
from tests.api.console.test_languages import unmarked
from tests.api.console.test_pages import version_of
from tests.api.console.test_project_home import rows
from tests.api.steps import body, delete

PART = {"HX-Request": "true"}
pytestmark = pytest.mark.anyio


async def made(cluster: Cluster, name: str = "data", project: str = "team-a") -> str:
    """Make a volume; return the address of its page."""
    volume = await ok(cluster.admin.post(f"{V1}/volumes", json={"name": name, "project": project}))
    return f"/volumes/{volume['id']}"


async def listed(cluster: Cluster) -> list[dict[str, Any]]:
    return list(await ok(cluster.admin.get(f"{V1}/volumes")))


async def test_the_list_says_how_much_is_in_each_and_how_much_may_be(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await made(ready)
    await ok(ready.admin.post(f"{V1}/sessions", json=body("first", pvcs=[{"name": "data", "target": "/data"}])))
    async with ready.database.transaction() as db:
        await db.execute(update(Volume).values(used_mib=1536, limit_mib=20480))
    assert rows((await browser.get("/volumes")).text, "v") == ["data team-a ready 1.5 GiB 20 GiB shared 1"]


async def test_one_is_made_for_a_project(ready: Cluster, browser: httpx.AsyncClient) -> None:
    assert '<option value="team-a">team-a</option>' in (await browser.get("/volumes")).text
    created = await browser.post("/volumes", data={"name": "data", "project": "team-a"}, headers=PART)
    assert (created.status_code, created.headers["hx-trigger"]) == (204, "refresh")
    again = await browser.post("/volumes", data={"name": "data", "project": "team-a"}, headers=PART)
    assert (again.status_code, [each["pointer"] for each in again.json()["errors"]]) == (409, ["/name"])
    wrong = await browser.post("/volumes", data={"name": "My Data", "project": "team-a"}, headers=PART)
    assert [each["pointer"] for each in wrong.json()["errors"]] == ["/name"]
    assert [volume["name"] for volume in await listed(ready)] == ["data"]


async def test_a_site_without_storage_says_so_and_offers_none(ready: Cluster, browser: httpx.AsyncClient) -> None:
    ready.app.state.settings = ready.settings.model_copy(update={"pvc_root": None})
    page = (await browser.get("/volumes")).text
    assert "This site has no shared storage for sessions." in page
    assert 'hx-post="/volumes"' not in page


async def test_one_is_found_by_name_or_project_and_the_list_is_bounded(
    ready: Cluster, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready.add_project("team-b", 0)
    for name, project in (("data", "team-a"), ("models", "team-b")):
        await made(ready, name, project)
    for word, found in (("MOD", ["models"]), ("team-a", ["data"]), ("nothing", [])):
        assert [row.split()[0] for row in rows((await browser.get(f"/volumes?q={word}")).text, "v")] == found
    monkeypatch.setattr(pages, "SHOWN", 1)
    assert "and 1 more" in (await browser.get("/volumes")).text


async def test_its_page_names_the_sessions_that_use_it(ready: Cluster, browser: httpx.AsyncClient) -> None:
    address = await made(ready)
    await made(ready, "models")
    for name, volume in (("first", "data"), ("second", "models")):
        await ok(ready.admin.post(f"{V1}/sessions", json=body(name, pvcs=[{"name": volume, "target": "/data"}])))
    page = (await browser.get(address)).text
    assert [row.split()[0] for row in rows(page, "s")] == ["first"]
    assert (await browser.get("/volumes/data?project=team-a")).status_code == 200
    await delete(ready, "first")
    await ready.settle()
    assert "No live session uses it." in (await browser.get(address)).text


async def test_one_is_deleted_by_who_writes_its_name(ready: Cluster, browser: httpx.AsyncClient) -> None:
    address = await made(ready)
    for written in ("", "dat"):
        refused = await browser.post(f"{address}/delete", data={"confirmed": written}, headers=PART)
        (told,) = refused.json()["errors"]
        assert (refused.status_code, told["pointer"], told["hint"]) == (
            *(422, "/confirmed", "write data: its files go for good"),
        )
    assert [volume["state"] for volume in await listed(ready)] == ["ready"]
    gone = await browser.post(f"{address}/delete", data={"confirmed": "data"}, headers=PART)
    assert (gone.status_code, gone.headers["hx-redirect"]) == (204, "/volumes")
    assert [volume["state"] for volume in await listed(ready)] == ["deleting"]
    assert 'hx-post="/volumes' not in (await browser.get(address)).text.partition("<main")[2]


async def test_one_in_use_is_neither_deleted_nor_handed_over(ready: Cluster, browser: httpx.AsyncClient) -> None:
    address = await made(ready)
    await ready.add_project("team-b", 0)
    await ok(ready.admin.post(f"{V1}/sessions", json=body("first", pvcs=[{"name": "data", "target": "/data"}])))
    for order, form in (("delete", {"confirmed": "data"}), ("hand-over", {"to": "team-b"})):
        refused = await browser.post(f"{address}/{order}", data=form, headers=PART)
        assert (refused.status_code, "in use by 1 live session: first" in refused.text) == (409, True)


async def test_one_is_handed_over_also_when_its_project_is_gone(ready: Cluster, browser: httpx.AsyncClient) -> None:
    address = await made(ready)
    await ready.add_project("team-b", 0)
    handed = await browser.post(f"{address}/hand-over", data={"to": "team-b", "new_name": "old"}, headers=PART)
    assert (handed.status_code, handed.headers["hx-redirect"]) == (204, "/volumes")
    assert [(volume["name"], volume["project"]) for volume in await listed(ready)] == [("old", "team-b")]
    await ok(ready.admin.delete(f"{V1}/projects/team-b", params={"volumes": "keep"}))
    assert rows((await browser.get("/volumes")).text, "v") == ["old was of team-b kept without a project – – shared 0"]
    assert (await browser.post(f"{address}/hand-over", data={"to": "team-a"}, headers=PART)).status_code == 204
    assert [(volume["name"], volume["project"]) for volume in await listed(ready)] == [("old", "team-a")]
    nowhere = await browser.post(f"{address}/hand-over", data={"to": "team-c"}, headers=PART)
    assert (nowhere.status_code, "team-c" in nowhere.text) == (404, True)


async def test_managers_make_and_delete_and_members_look_on(ready: Cluster) -> None:
    address = await made(ready)
    await ready.add_project("team-b", 0)
    await made(ready, "models", "team-b")
    async with await ready.user("mary") as mary, await ready.user("alice") as alice, await ready.user("bob") as bob:
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"managers": ["mary"], "members": ["alice"]}))
        for client, orders in ((mary, ["/volumes", f"{address}/delete"]), (alice, [])):
            pages = (await client.get("/volumes", headers=PAGE)).text + (await client.get(address, headers=PAGE)).text
            assert re.findall(r'hx-post="(/volumes[^"]*)"', pages) == orders
            assert "models" not in pages
        refused = await alice.post(f"{address}/delete", data={"confirmed": "no"}, headers=PART)
        assert refused.status_code == 403
        assert (await bob.get(address, headers=PAGE)).status_code == 404


async def test_the_list_is_read_again_when_it_has_changed_and_no_sooner(
    ready: Cluster, browser: httpx.AsyncClient, statements: list[str]
) -> None:
    seen = {**PART, SEEN_HEADER: version_of((await browser.get("/volumes")).text)}
    statements.clear()
    assert (await browser.get("/volumes", headers=seen)).status_code == 204
    assert [each for each in statements if "FROM volumes" in each and "xmin" not in each] == []
    await made(ready)
    assert (await browser.get("/volumes", headers=seen)).status_code == 200


@pytest.mark.usefixtures("marked")
async def test_no_text_of_a_volume_goes_past_translation(ready: Cluster, browser: httpx.AsyncClient) -> None:
    address = await made(ready)
    for path in ("/volumes", address):
        known = {"data", "shared", address.rpartition("/")[2]}
        assert unmarked((await browser.get(path)).text) <= known
