"""The page of projects: what they hold, and who is in them."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest

from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.api.console.conftest import PAGE

PART = {"HX-Request": "true"}
pytestmark = pytest.mark.anyio


def cells(page: str, project: str) -> list[str]:
    """Return what the cells of a project's row say, without their markup."""
    (row,) = [row for row in re.findall(r"<tr id.*?</tr>", page, re.DOTALL) if f'title="{project}"' in row]
    return [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]


async def test_a_project_says_what_it_holds_and_who_is_in_it(ready: Cluster, browser: httpx.AsyncClient) -> None:
    async with await ready.user("alice"), await ready.user("bob"):
        pass
    period = {"ends_at": "2999-01-01T00:00:00Z"}
    people = {"members": ["alice"], "managers": ["bob"]}
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False, "period": period, **people}))
    await ready.submit("first", 1000)
    await ready.settle()
    found = cells((await browser.get("/projects")).text, "team-a")
    assert found == ["1", "4", "25 %", "–", "managed by bob alice", "2999-01-01 00:00 UTC"]


async def test_nobody_sees_projects_of_others(ready: Cluster) -> None:
    async with await ready.user("alice") as alice:
        page = (await alice.get("/projects")).text
    assert "You are in no project yet" in page
    assert "team-a" not in page


async def test_who_may_make_projects_is_sent_to_nobody_else_where_there_is_none(cluster: Cluster) -> None:
    async with cluster.client(**PAGE) as admin:
        await sign_in(admin, "admin")
        for path, leads in (("/", True), ("/launch", True), ("/projects", False)):
            page = (await admin.get(path)).text
            assert "There is no project yet." in page
            assert "ask an administrator" not in page
            assert ('yet. <a href="/projects">' in page) is leads


async def test_the_first_page_leads_to_projects(ready: Cluster, browser: httpx.AsyncClient) -> None:
    assert '<a href="/projects/team-a">team-a</a>' in (await browser.get("/")).text


async def test_a_project_is_made_and_changed(ready: Cluster, browser: httpx.AsyncClient) -> None:
    async with await ready.user("alice"), await ready.user("bob"):
        pass
    form = {"name": "team-b", "quota": "1.5", "over_quota": "false", "ends_at": "2999-01-01", "members": "alice"}
    made = await browser.post("/projects", data=form, headers=PART)
    assert (made.status_code, made.headers["hx-redirect"]) == (204, "/projects/team-b")
    project = await ok(ready.admin.get(f"{V1}/projects/team-b"))
    assert (project["quota_milli"], project["over_quota"], project["members"]) == (1500, False, ["alice"])
    assert project["period"]["ends_at"].startswith("2999-01-01T00:00:00")
    change = {"quota": "2", "over_quota": "true", "add_members": "bob", "remove_members": "alice"}
    assert (await browser.post("/projects/team-b", data=change, headers=PART)).status_code == 204
    project = await ok(ready.admin.get(f"{V1}/projects/team-b"))
    assert (project["quota_milli"], project["over_quota"], project["members"]) == (2000, True, ["bob"])
    page = (await browser.get("/projects/team-b")).text
    assert "<dd>bob</dd>" in page
    wrong = await browser.post("/projects", data={**form, "name": "team-c", "ends_at": "never"}, headers=PART)
    assert [told["pointer"].split("/")[1] for told in wrong.json()["errors"]] == ["period"]


async def test_the_end_of_a_project_is_put_off_and_its_description_corrected(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    before = (await ok(ready.admin.get(f"{V1}/projects/team-a")))["period"]["starts_at"]
    for ends_at, description in (("2998-07-01T12:30", "<b>vision</b>"), ("2999-01-01T00:00", ""), ("", "speech")):
        changed = await changed_as_shown(browser, ends_at=ends_at, description=description)
        assert (changed.status_code, changed.headers["hx-redirect"]) == (204, "/projects/team-a")
        page = (await browser.get("/projects/team-a")).text
        assert re.findall(r'name="ends_at" data-field="period" type="datetime-local" value="([^"]*)"', page) == [
            ends_at
        ]
        project = await ok(ready.admin.get(f"{V1}/projects/team-a"))
        assert (project["period"]["ends_at"] or "")[:16] == ends_at
        assert (project["period"]["starts_at"], project["description"]) == (before, description)
    wrong = await changed_as_shown(browser, ends_at="never", description="")
    assert [told["pointer"].split("/")[1] for told in wrong.json()["errors"]] == ["period"]


async def test_what_nobody_has_changed_of_an_end_stays_to_the_second(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    ends_at = "2999-01-01T10:20:30Z"
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"period": {"ends_at": ends_at}}))
    assert (await changed_as_shown(browser, ends_at="2999-01-01T10:20", quota="3")).status_code == 204
    project = await ok(ready.admin.get(f"{V1}/projects/team-a"))
    assert (project["period"]["ends_at"], project["quota_milli"]) == (ends_at, 3000)


async def changed_as_shown(browser: httpx.AsyncClient, **more: str) -> httpx.Response:
    """Return the answer to the form of a project as its page shows it, but for some fields."""
    page = (await browser.get("/projects/team-a")).text
    hidden = {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)}
    form = hidden | {"quota": "4", "over_quota": "true", "description": "", **more}
    return await browser.post("/projects/team-a", data=form, headers=PART)


async def test_a_project_is_deleted_when_its_sessions_have_ended(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("last", 1000)
    await ready.settle()
    refused = await browser.post("/projects/team-a/delete", data={"volumes": "keep"}, headers=PART)
    assert refused.status_code == 409
    assert "Its end" in (await browser.get("/projects/team-a")).text
    await ok(ready.admin.delete(f"{V1}/sessions/last", params={"project": "team-a"}))
    await ready.settle()
    wrong = await browser.post("/projects/team-a/delete", data={"volumes": "hand-over"}, headers=PART)
    assert (wrong.status_code, (await browser.get("/projects/team-a")).status_code) == (422, 200)
    gone = await browser.post("/projects/team-a/delete", data={"volumes": "delete"}, headers=PART)
    assert (gone.status_code, gone.headers["hx-redirect"]) == (204, "/projects")
    assert (await browser.get("/projects/team-a")).status_code == 404


async def test_a_manager_changes_who_is_in_it_and_no_more(ready: Cluster) -> None:
    async with await ready.user("bob") as bob, await ready.user("alice"):
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"managers": ["bob"]}))
        page = (await bob.get("/projects/team-a")).text
        assert "New members" in page
        assert "Guaranteed GPUs" not in page
        assert (await bob.post("/projects/team-a", data={"add_members": "alice"}, headers=PART)).status_code == 204
        assert (await bob.post("/projects/team-a", data={"quota": "9"}, headers=PART)).status_code == 403
    project = await ok(ready.admin.get(f"{V1}/projects/team-a"))
    assert (project["members"], project["quota_milli"]) == (["alice"], 4000)


async def test_what_another_has_changed_of_a_project_meanwhile_stays(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    (shown,) = re.findall(r'name="shown" value="([^"]+)"', (await browser.get("/projects/team-a")).text)
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False}))
    form = {"shown": unescape(shown), "quota": "3", "over_quota": "true"}
    changed = await browser.post("/projects/team-a", data=form, headers=PART)
    assert changed.status_code == 204, changed.text
    assert changed.headers["hx-redirect"] == "/projects/team-a"
    project = await ok(ready.admin.get(f"{V1}/projects/team-a"))
    assert (project["quota_milli"], project["over_quota"]) == (3000, False)
