"""What holds for every page: headers, nothing inline or from elsewhere, who is let in, parts that stay up to date."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import Request
from sqlalchemy import select, update

from api.auth.policy import UserRole
from api.clock import now
from api.console import pages, texts
from api.endpoints.access import SEEN_HEADER
from api.lists import nodes, stamps, summary
from api.lists.summary import RoomOfGroups
from api.tables.logins import Login
from api.tables.nodes import Node
from api.tables.users import Language
from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.api.console.conftest import PAGE
from tests.api.steps import delete, run
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

PATHS = (
    "/",
    "/sessions",
    "/sessions/first?project=team-a",
    "/launch",
    "/projects",
    "/overview",
    "/nodes",
    "/nodes/worker1",
    "/queue",
    "/accounting",
    "/keys",
    "/users",
    "/images",
    "/volumes",
    "/resource-groups",
    "/presets",
    "/user-policies",
    "/domains",
    "/sandboxes",
    "/health/checks",
    "/repairs",
    "/backups",
    "/notices",
    "/nothing-here",
)
LIVE = ("/", "/sessions", "/sessions/first?project=team-a", "/projects", "/overview", "/nodes", "/queue")
PLOTS = ("/sessions/first?project=team-a", "/accounting")
EVIL = "<script>alert(1)</script>"


def version_of(text: str) -> str:
    found = re.search(r'data-version="(\w+)"', text)
    assert found, text
    return found[1]


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_has_our_policy_and_nothing_inline_or_from_elsewhere(
    ready: Cluster, browser: httpx.AsyncClient, path: str
) -> None:
    await ready.submit("first", ports=[8888])
    ready.app.state.settings = ready.settings.model_copy(update={"apps_url": "https://site.example:9443"})
    page = await browser.get(path)
    assert page.status_code == (404 if path == "/nothing-here" else 200)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self' https://site.example:9443; frame-ancestors 'none'; base-uri 'none'"
    )
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["cross-origin-opener-policy"] == "same-origin"
    loaded = re.findall(r'<(?:script|link)[^>]* (?:src|href)="([^"]+)"', page.text)
    assert len(loaded) == (9 if path in PLOTS else 6), "no page loads what it does not need"
    assert all(address.startswith(("/static/", "data:")) for address in loaded)
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|\shx-on", page.text), "nothing inline"


@pytest.mark.parametrize("path", LIVE)
async def test_a_part_is_sent_when_it_has_changed(
    ready: Cluster, browser: httpx.AsyncClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # at the turn of a minute every part is another one
    moment = now()
    monkeypatch.setattr(stamps, "now", lambda: moment)
    await ready.submit("first")
    version = version_of((await browser.get(path)).text)
    part = {"HX-Request": "true", SEEN_HEADER: version}
    same = await browser.get(path, headers=part)
    assert (same.status_code, same.content) == (204, b"")
    await ready.submit("second", 1000)
    await ready.settle()
    other = await browser.get(path, headers=part)
    assert other.status_code == 200
    assert other.text.startswith("<div id=")
    assert version_of(other.text) != version


@pytest.mark.parametrize("path", ["/", "/sessions", "/overview", "/nodes"])
async def test_a_page_that_is_as_it_was_is_not_made_again(
    ready: Cluster, browser: httpx.AsyncClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    fill = pages._filled

    def noted(request: Request, template: str, values: Mapping[str, Any], **how: bool) -> str:
        made.append(template)
        return fill(request, template, values, **how)

    monkeypatch.setattr(pages, "_filled", noted)
    moment = now()
    monkeypatch.setattr(stamps, "now", lambda: moment)

    version = version_of((await browser.get(path)).text)

    async def seen(version: str) -> tuple[int, str]:
        answer = await browser.get(path, headers={"HX-Request": "true", SEEN_HEADER: version})
        return answer.status_code, answer.text

    async def changes(what: Awaitable[object]) -> None:
        nonlocal version
        await what
        made.clear()
        status, text = await seen(version)
        assert made, "it is looked at again"
        version = version_of(text) if status == 200 else version
        made.clear()
        assert (await seen(version))[0] == 204
        assert made == []

    made.clear()
    assert (await seen(version))[0] == 204
    assert made == []
    await changes(run(ready, "first"))
    if path in ("/overview", "/nodes"):
        await changes(ready.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}))
    else:
        await changes(delete(ready, "first"))
    await changes(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 2000}))
    moment += timedelta(minutes=1)
    await changes(asyncio.sleep(0))
    async with await ready.user("alice") as alice:
        other = await alice.get(path, headers={**PAGE, "HX-Request": "true", SEEN_HEADER: version})
    assert other.status_code != 204, "what one sees is not what another does"


async def test_what_was_written_is_asked_once_for_all_who_look_and_rights_for_each(
    ready: Cluster, browser: httpx.AsyncClient, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "SEEN_S", 3600.0)
    async with await ready.user("alice") as alice:
        shown = {client: version_of((await client.get("/sessions", headers=PAGE)).text) for client in (browser, alice)}
        statements.clear()
        for client, version in shown.items():
            part = {"HX-Request": "true", SEEN_HEADER: version}
            assert (await client.get("/sessions", headers=part)).status_code == 204
        assert len(statements) == 2, "who calls, and no more"
        await ok(ready.admin.patch(f"{V1}/users/alice", json={"disabled": True}))
        assert (await alice.get("/sessions", headers=part)).status_code == 401


async def test_a_list_is_made_once_for_all_who_see_the_same_in_the_same_language(
    ready: Cluster, browser: httpx.AsyncClient, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = now()
    monkeypatch.setattr(stamps, "now", lambda: moment)
    await ready.add_project("team-b", 1000)
    korean = {"Accept-Language": "ko"}
    async with (
        await ready.user("bob", UserRole.ADMIN) as bob,
        await ready.user("alice") as alice,
        await ready.user("carol") as carol,
    ):
        for project, member in (("team-a", "alice"), ("team-b", "carol")):
            await ok(ready.admin.patch(f"{V1}/projects/{project}", json={"members": [member]}))
        await ready.submit("first", 100, "team-a", access="private")
        await ready.submit("second", 100, "team-b")

        async def seen(client: httpx.AsyncClient, query: str = "", **headers: str) -> tuple[list[str], int, str]:
            """Return the sessions that a page which is open is told of, and how often sessions were read for it."""
            statements.clear()
            part = {**PAGE, "HX-Request": "true", SEEN_HEADER: "old", **headers}
            answer = await client.get(f"/sessions{query}", headers=part)
            read = len([each for each in statements if "json_object_agg" in each])
            return re.findall(r'title="([a-z-]+)">', answer.text), read, answer.text

        both = ["second", "first"]
        shown, read, text = await seen(browser)
        assert (shown, read) == (both, 1)
        assert await seen(bob) == (both, 0, text), "made for somebody else"
        assert (await seen(bob, **korean))[1] == 1
        assert (await seen(browser, **korean))[1] == 0
        assert (await seen(browser, **korean))[2] != text
        assert (await seen(bob, "?q=first"))[:2] == (["first"], 1)
        assert (await seen(bob, "?mine=1"))[:2] == ([], 1)
        assert (await seen(browser, "?mine=1"))[:2] == (both, 1)
        assert (await seen(alice))[:2] == ([], 1), "private ones are their owners'"
        assert (await seen(carol))[:2] == (["second"], 1)
        assert (await seen(carol))[:2] == (["second"], 0)
        statements.clear()
        assert "second" in (await carol.get("/sessions", headers=PAGE)).text
        assert [each for each in statements if "json_object_agg" in each], (
            "who goes to a page sees what is there by then"
        )
        await ready.submit("third", 100, "team-b")
        assert (await seen(bob))[:2] == (["third", *both], 1)
        assert (await seen(carol))[:2] == (["third", "second"], 1)


async def test_who_is_not_known_signs_in_and_comes_back(ready: Cluster) -> None:
    async with ready.client(**PAGE) as guest:
        answer = await guest.get("/sessions?q=a b&mine=1")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/login?next=%2Fsessions%3Fq%3Da%2520b%26mine%3D1"
        assert (await guest.get("/")).headers["location"] == "/login"
    async with ready.client(**{"HX-Request": "true"}) as script:
        assert (await script.get("/sessions")).status_code == 401, "a script of ours hears of it, and of no page"


async def test_who_has_a_given_password_chooses_another_one_first(ready: Cluster) -> None:
    user = {"name": "carol", "password": PASSWORD, "must_change_password": True}
    await ok(ready.admin.post(f"{V1}/users", json=user))
    async with ready.client(**PAGE) as browser:
        await sign_in(browser, "carol")
        assert (await browser.get("/sessions")).headers["location"] == "/password"
        page = await browser.get("/password")
        assert page.status_code == 200
        assert 'id="sign-in" hidden' in page.text


async def test_what_is_refused_is_said_on_a_page_and_to_scripts_as_a_problem(browser: httpx.AsyncClient) -> None:
    path = "/sessions/nothing?project=team-a"
    page = await browser.get(path)
    assert page.status_code == 404
    assert "team-a has no session nothing" in page.text
    told = await browser.get(path, headers={"HX-Request": "true"})
    assert told.headers["content-type"] == "application/problem+json"
    assert (await browser.get("/sessions?before=x")).status_code == 422
    assert (await browser.post("/sessions")).headers["allow"] == "GET"


async def test_addresses_of_the_api_answer_as_before(browser: httpx.AsyncClient) -> None:
    assert (await browser.get(f"{V1}/nothing")).headers["content-type"] == "application/problem+json"


async def test_a_member_has_no_pages_of_administrators(ready: Cluster) -> None:
    async with await ready.user("alice") as member:
        assert 'href="/overview"' not in (await member.get("/", headers=PAGE)).text
        page = await member.get("/overview", headers=PAGE)
    assert page.status_code == 403
    assert "<h1>Forbidden</h1>" in page.text


@pytest.mark.parametrize("headers", [{}, {"X-CSRF-Token": "0" * 64}])
async def test_a_form_of_another_site_changes_nothing(
    ready: Cluster, browser: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    await ready.submit("first")
    own = browser.headers.pop("X-CSRF-Token")
    path = "/sessions/first/delete?project=team-a"
    assert (await browser.post(path, headers=headers)).status_code == 403
    foreign = {"X-CSRF-Token": own, "Origin": "https://evil.example"}
    assert (await browser.post(path, headers=foreign)).status_code == 403
    assert await ready.states() == {"first": "PENDING"}
    token = re.search(r'name="csrf-token" content="(\w+)"', (await browser.get("/")).text)
    assert token
    assert token[1] == own
    assert (await browser.post(path, headers={"X-CSRF-Token": own})).status_code == 204


async def test_a_page_of_a_former_login_is_loaded_anew_and_its_forms_say_what_to_do(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    """Another tab may have signed in anew, as somebody else perhaps: what stands around a part was for that one."""
    part = {"HX-Request": "true"}
    assert "hx-refresh" not in (await browser.get("/sessions", headers=part)).headers
    former = {**part, "X-CSRF-Token": browser.headers["X-CSRF-Token"]}
    await sign_in(browser, "admin")
    answer = await browser.get("/sessions", headers=former)
    assert (answer.status_code, answer.headers["hx-refresh"], answer.text) == (204, "true", "")
    assert "hx-refresh" not in (await browser.get("/sessions", headers=part)).headers
    refused = (await browser.post("/language", headers={**former, "Accept-Language": "ko"})).json()
    assert refused["status"] == 403
    korean = texts.speech(Language.KOREAN)
    assert refused["errors"][0]["hint"] == korean.gettext("load the page again") != "load the page again"
    told = (await browser.post("/language", headers={"X-CSRF-Token": "0", "Accept": "*/*"})).json()
    assert "/auth/csrf" in told["errors"][0]["hint"], "a program"


async def test_signing_out_ends_the_login(browser: httpx.AsyncClient) -> None:
    answer = await browser.post("/logout")
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/login")
    assert (await browser.get("/")).headers["location"] == "/login"


async def test_what_people_write_stays_text(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("first", command=["echo", EVIL])
    await ready.settle()
    session = await ready.session("first")
    ready.engine.output[ready.container(session)[1]] = f"\x1b[31m{EVIL}\x1b[0m\n10 %\r20 %\n".encode()
    for path in ("/sessions/first?project=team-a", "/sessions/first/log?project=team-a", f"/sessions?q={EVIL}"):
        page = await browser.get(path)
        assert EVIL not in page.text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text, path
    log = (await browser.get("/sessions/first/log?project=team-a")).text
    assert "\n20 %" in log
    assert "10 %" not in log
    assert "\x1b" not in log


async def test_all_nodes_are_read_once_for_all_who_look_at_the_first_page(
    ready: Cluster, browser: httpx.AsyncClient, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, lasts in ((summary, "ROOM_S"), (nodes, "GROUPS_S")):
        monkeypatch.setattr(module, lasts, 3600.0)

    def looked() -> int:
        return len([each for each in statements if "FROM nodes" in each])

    async with await ready.user("alice") as alice:
        await browser.get("/")
        assert looked() > 0
        statements.clear()
        for client in (alice, browser):
            version = version_of((await client.get("/", headers=PAGE)).text)
        assert looked() == 0
        ready.app.state.room_of_groups = RoomOfGroups()
        async with ready.database.transaction() as db:
            await db.execute(update(Node).values(cpu_milli=Node.cpu_milli + 1000))
        statements.clear()
        page = await browser.get("/", headers={"HX-Request": "true", SEEN_HEADER: version})
        assert (page.status_code, looked()) == (200, 1), "another amount is another page"


async def test_a_page_that_nobody_uses_does_not_keep_its_login_alive(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    version = version_of((await browser.get("/")).text)

    async def used_after(address: str, headers: dict[str, str]) -> bool:
        long_ago = now() - timedelta(hours=1)
        async with ready.database.transaction() as db:
            await db.execute(update(Login).values(used_at=long_ago))
        assert (await browser.get(address, headers=headers)).is_success
        async with ready.database.reading() as db:
            return await db.scalar(select(Login.used_at)) != long_ago

    assert not await used_after("/", {"HX-Request": "true", SEEN_HEADER: version})
    assert await used_after("/", {"HX-Request": "true"})
    assert await used_after(f"{V1}/sessions", {SEEN_HEADER: version}), "no page asks that"


async def test_a_link_on_another_site_leads_to_a_page_and_nothing_else_of_that_site_does(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    """A page that is gone to shows nothing to where the link stood; one that is fetched or framed would."""
    await ready.submit("first")
    gone_to = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await browser.get("/sessions", headers=gone_to)).status_code == 200
    for other in ({"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, {"Sec-Fetch-Dest": "iframe"}):
        assert (await browser.get("/sessions", headers=gone_to | other)).status_code == 403
    assert (await browser.get(f"{V1}/sessions", headers=gone_to)).status_code == 403, "the API has no links to it"
    form = await browser.post("/sessions/first/delete?project=team-a", headers=gone_to)
    assert form.status_code == 403, "a form of that site, even with a token that it cannot know"
