"""The page of projects: what they hold, and who is in them."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest

from api.auth.policy import UserRole
from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.api.console.conftest import PAGE

PART = {"HX-Request": "true"}
SAME = {"described": "true", "quota": "4", "over_quota": "true", "starts_at": "", "ends_at": ""}
"""What the form of a project sends that is as it was made here."""
MORE = {
    "description": "a team",
    "limit": "6.5",
    "on_expiry": "finish",
    "training_group": "night",
    "interactive_limit": "8",
    "interactive_extension": "1.5",
    "min_runtime": "0.5",
    "over_quota_weight": "3",
    "cpu_quota": "16",
    "cpu_limit": "32",
    "memory_quota": "1.5",
    "memory_limit": "64",
    "session_access": "private",
}
KEPT = {
    "description": "a team",
    "limit_milli": 6500,
    "on_expiry": "finish",
    "training_group": "night",
    "interactive_group": None,
    "interactive_limit_s": 28800,
    "interactive_extension_s": 5400,
    "min_runtime_s": 1800,
    "over_quota_weight": 3,
    "cpu_quota_milli": 16000,
    "cpu_limit_milli": 32000,
    "memory_quota_mib": 1536,
    "memory_limit_mib": 65536,
    "session_access": "private",
}
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
    assert found[:7] == ["1", "4", "25 %", "–", "managed by bob alice", "–", "–"]
    assert found[8] == "2999-01-01 00:00 UTC"


async def test_the_list_says_where_sessions_run_and_since_when_a_project_is_there(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    for name in ("night", "day"):
        await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": name, "projects": ["team-a"]}))
    kept_to = {"training_group": "night", "interactive_group": "day"}
    created = (await ok(ready.admin.patch(f"{V1}/projects/team-a", json=kept_to)))["created_at"]
    found = cells((await browser.get("/projects")).text, "team-a")
    assert found[5:8] == ["night", "day", f"{created[:10]} {created[11:16]} UTC"]


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
    form = {"name": "team-b", "quota": "1.5", "over_quota": "false", "members": "alice"}
    form |= {"ends_at": "2999-01-01T00:00"}
    made = await browser.post("/projects", data=form, headers=PART)
    assert (made.status_code, made.headers["hx-redirect"]) == (204, "/projects/team-b")
    project = await ok(ready.admin.get(f"{V1}/projects/team-b"))
    assert (project["quota_milli"], project["over_quota"], project["members"]) == (1500, False, ["alice"])
    assert project["period"]["ends_at"].startswith("2999-01-01T00:00:00")
    change = {"described": "true", "quota": "2", "over_quota": "true", "add_members": "bob", "remove_members": "alice"}
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
        assert (
            await bob.post("/projects/team-a", data={"described": "true", "quota": "9"}, headers=PART)
        ).status_code == 403
    project = await ok(ready.admin.get(f"{V1}/projects/team-a"))
    assert (project["members"], project["quota_milli"]) == (["alice"], 4000)


async def test_what_another_has_changed_of_a_project_meanwhile_stays(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    (shown,) = re.findall(r'name="shown" value="([^"]+)"', (await browser.get("/projects/team-a")).text)
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False}))
    form = SAME | {"shown": unescape(shown), "quota": "3"}
    changed = await browser.post("/projects/team-a", data=form, headers=PART)
    assert changed.status_code == 204, changed.text
    assert changed.headers["hx-redirect"] == "/projects/team-a"
    project = await ok(ready.admin.get(f"{V1}/projects/team-a"))
    assert (project["quota_milli"], project["over_quota"]) == (3000, False)


async def test_all_settings_of_a_project_are_made_shown_and_taken_away(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": "night", "open": True}))
    assert "<option>night</option>" in (await browser.get("/projects")).text
    form = {"name": "team-b", "quota": "4", "over_quota": "true", "starts_at": "2026-01-02T03:04", **MORE}
    made = await browser.post("/projects", data=form, headers=PART)
    assert made.status_code == 204, made.text
    project = await ok(ready.admin.get(f"{V1}/projects/team-b"))
    assert {field: project[field] for field in KEPT} == KEPT
    assert project["period"] == {"starts_at": "2026-01-02T03:04:00Z", "ends_at": None}
    page = (await browser.get("/projects/team-b")).text
    for shown in (
        'name="starts_at" data-field="period" type="datetime-local" value="2026-01-02T03:04"',
        '<option value="finish" selected>',
        '<option value="private" selected>',
        "<option selected>night</option>",
        'name="limit" data-field="limit_milli" type="number" min="0" step="any" value="6.5"',
        'name="over_quota_weight" type="number" min="0" value="3"',
    ):
        assert shown in page
    assert (await browser.post("/projects/team-b", data=SAME, headers=PART)).status_code == 204
    project = await ok(ready.admin.get(f"{V1}/projects/team-b"))
    assert {field: value for field, value in project.items() if field in KEPT and value} == {
        "on_expiry": "stop",
        "session_access": "project",
    }


async def test_who_sends_a_form_as_it_was_shown_changes_nothing(ready: Cluster, browser: httpx.AsyncClient) -> None:
    before = await ok(ready.admin.get(f"{V1}/projects/team-a"))
    page = (await browser.get("/projects/team-a")).text
    (shown,) = re.findall(r'name="shown" value="([^"]+)"', page)
    (starts,) = re.findall(r'name="starts_at"[^>]* value="([^"]+)"', page)
    same = SAME | {"shown": unescape(shown), "starts_at": starts}
    assert (await browser.post("/projects/team-a", data=same, headers=PART)).status_code == 204
    assert await ok(ready.admin.get(f"{V1}/projects/team-a")) == before, "the seconds of its start, too"


async def test_a_project_that_ended_is_prolonged(ready: Cluster, browser: httpx.AsyncClient) -> None:
    period = {"starts_at": "2020-01-01T00:00:00Z", "ends_at": "2021-01-01T00:00:00Z"}
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"period": period}))
    page = (await browser.get("/projects/team-a")).text
    assert "outside its period" in page
    (shown,) = re.findall(r'name="shown" value="([^"]+)"', page)
    form = SAME | {"shown": unescape(shown), "starts_at": "2020-01-01T00:00", "ends_at": "2999-01-01T12:30"}
    assert (await browser.post("/projects/team-a", data=form, headers=PART)).status_code == 204
    project = await ok(ready.admin.get(f"{V1}/projects/team-a"))
    assert (project["active"], project["period"]["ends_at"]) == (True, "2999-01-01T12:30:00Z")


async def test_administrators_of_a_domain_give_no_weight_and_keep_that_of_the_site(ready: Cluster) -> None:
    await ok(ready.admin.post(f"{V1}/domains", json={"name": "acme", "quota_milli": 4000}))
    made = {
        "name": "team-b",
        "quota_milli": 1000,
        "over_quota_weight": 3,
        "domain": "acme",
        "period": {"ends_at": None},
    }
    await ok(ready.admin.post(f"{V1}/projects", json=made))
    async with await ready.user("boss", UserRole.ADMIN) as boss:
        await ok(ready.admin.patch(f"{V1}/users/boss", json={"domain": "acme"}))
        page = (await boss.get("/projects/team-b", headers=PAGE)).text
        assert 'name="over_quota_weight"' not in page
        assert 'name="over_quota_weight"' not in (await boss.get("/projects", headers=PAGE)).text
        (shown,) = re.findall(r'name="shown" value="([^"]+)"', page)
        form = SAME | {"quota": "1", "description": "ours", "shown": unescape(shown)}
        changed = await boss.post("/projects/team-b", data=form, headers=PART)
        assert changed.status_code == 204, changed.text
    project = await ok(ready.admin.get(f"{V1}/projects/team-b"))
    assert (project["description"], project["over_quota_weight"]) == ("ours", 3)


async def test_what_is_wrong_with_a_setting_is_said_of_its_field(browser: httpx.AsyncClient) -> None:
    for field, value, where in (
        ("ends_at", "never", "period"),
        ("ends_at", "2000-01-01T00:00", "period"),
        ("training_group", "nights", "training_group"),
        ("cpu_limit", "0.00001", "cpu_limit_milli"),
    ):
        form = {"name": "team-b", "quota": "1", "over_quota": "true", field: value}
        wrong = await browser.post("/projects", data=form, headers=PART)
        assert wrong.status_code == 422
        told = [
            (each.get("pointer") or "/" + each["where"]).split("/")[1].partition(".")[0]
            for each in wrong.json()["errors"]
        ]
        assert told == [where]


async def test_a_large_quota_stands_in_its_field_as_a_number_that_browsers_take(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 1_500_500}))
    page = (await browser.get("/projects/team-a")).text
    assert 'name="quota" data-field="quota_milli" type="number" min="0" step="any" value="1500.5"' in page
