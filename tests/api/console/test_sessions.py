"""The pages of sessions: what is found, in which order, and what is done to one of them."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx
import pytest

from api.auth.policy import Action
from api.console import session
from api.endpoints.access import action_of
from common.errors import UnavailableError
from common.sentence import Sentence
from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.api.console.conftest import PAGE
from tests.api.resources.denied_calls.test_denied_calls import denied_call, report
from tests.api.steps import body, delete, run, wait_behind_limits

pytestmark = pytest.mark.anyio


async def names(browser: httpx.AsyncClient, query: str = "") -> list[str]:
    page = await browser.get(f"/sessions{query}")
    assert page.status_code == 200
    return re.findall(r'title="([a-z0-9-]+)">', page.text)


async def tabs(browser: httpx.AsyncClient, query: str = "") -> list[str]:
    return re.findall(r"<li><a [^>]+>([^<]+)</a></li>", (await browser.get(f"/sessions{query}")).text)


async def test_the_newest_come_first_by_state_and_by_words(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.add_project("team-b", 1000)
    for number, project in enumerate(("team-a", "team-b", "team-a")):
        await ready.submit(f"s-{number}", 1000, project)
    await ready.settle()
    await ready.submit("large", 4000, preemptible=False)
    await ready.settle()
    assert await names(browser) == ["large", "s-2", "s-1", "s-0"]
    assert await tabs(browser) == ["all 4", "waiting 1", "running 3"]
    assert await names(browser, "?state=PENDING") == ["large"]
    assert await names(browser, "?q=TEAM-b") == ["s-1"]
    assert await names(browser, "?q=s- team-a") == ["s-2", "s-0"]
    assert await names(browser, "?q=%25") == [], "what means something to the database is a letter like others"
    assert await tabs(browser, "?q=team-b&state=PENDING") == ["all 1", "waiting 0", "running 1"]


async def test_a_page_leads_to_the_one_before(
    ready: Cluster, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.console.sessions.SHOWN", 2)
    for number in range(3):
        await ready.submit(f"s-{number}", 100)
    page = (await browser.get("/sessions?state=PENDING")).text
    older = re.search(r'<p><a href="([^"]+)">', page)
    assert older
    assert await names(browser, older[1].replace("&amp;", "&").removeprefix("/sessions")) == ["s-0"]


async def test_mine_alone_are_those_of_nobody_else(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("admins")
    async with await ready.user("alice") as alice:
        await ready.admin.patch("/api/v1/projects/team-a", json={"members": ["alice"]})
        assert await names(alice) == ["admins"]
        assert await names(alice, "?mine=1") == []
        assert "Nothing runs or waits." in (await alice.get("/")).text
    assert await names(browser, "?mine=1") == ["admins"]


async def test_a_session_that_waits_says_why(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("first", 4000, preemptible=False)
    await ready.submit("second", 4000, preemptible=False)
    await ready.settle()
    reason = (await ready.session("second"))["reason"]
    for path in ("/", "/sessions", "/sessions/second?project=team-a", "/overview"):
        assert reason in (await browser.get(path)).text, path


async def test_an_elastic_session_says_why_it_does_not_grow(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("gang", 1000, replicas=4, max_replicas=6)
    for _ in range(3):
        await ready.settle()
        await ready.heartbeat("worker1")
    await ready.settle()
    reason = (await ready.session("gang"))["not_grown"]
    assert reason
    page = (await browser.get("/sessions/gang?project=team-a")).text
    assert f"<b>Why it does not grow:</b> {reason}" in page


def test_a_button_is_offered_by_the_action_that_its_route_needs() -> None:
    """Who may do one of two things is not offered the other."""
    assert action_of(session.resize_session) is Action.SESSION_RESIZE
    assert action_of(session.extend_session) is Action.SESSION_EXTEND


async def test_only_shares_that_a_session_can_have_are_offered(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.add_node("worker2", 1)
    sizes: dict[str, dict[str, Any]] = {
        "part": {"gpu_milli": 600},
        "more": {"gpu_milli": 1600},
        "whole": {"gpu_milli": 1000},
        "elastic": {"gpu_milli": 500, "max_replicas": 2},
    }
    for name, size in sizes.items():
        await ready.submit(name, **size)
    await ready.settle()
    asked = {name: await browser.get(f"/sessions/{name}?project=team-a") for name in sizes}
    offered = {name: re.findall(r'<option value="(\d+)"', page.text) for name, page in asked.items()}
    assert (offered["part"][0], offered["part"][-1], "1000" in offered["part"]) == ("50", "950", False)
    assert (offered["more"][0], offered["more"][-1]) == ("1050", "1950")
    assert (offered["whole"], offered["elastic"]) == ([], [])
    for name, milli in (("part", "50"), ("more", "1050")):
        answer = await browser.post(f"/sessions/{name}/resize?project=team-a", data={"gpu_milli": milli})
        assert answer.status_code == 204, answer.text
    page = (await browser.get("/sessions/part?project=team-a")).text
    assert re.findall(r'<option value="(\d+)"', page) == ["50", "600"], "until that is done it can only be withdrawn"


async def test_only_shares_that_there_is_space_for_are_offered(ready: Cluster, browser: httpx.AsyncClient) -> None:
    """A GPU has no more than others leave of it, and a project no more than its hard quota."""
    await ready.submit("part", 300)
    await ready.submit("beside", 500)
    await ready.settle()

    async def most() -> str:
        return str(re.findall(r'<option value="(\d+)"', (await browser.get("/sessions/part?project=team-a")).text)[-1])

    assert await most() == "500"
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False, "quota_milli": 900}))
    assert await most() == "400"
    await ready.submit("full", 100)
    await ready.settle()
    assert await most() == "300", "what it has it may keep"


async def test_no_share_is_offered_that_the_policy_or_the_period_of_the_project_forbids(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ready.submit("part", 300, replicas=2)
    await ready.submit("beside", 500)
    await ready.settle()
    page = "/sessions/part?project=team-a"

    async def offered() -> list[str]:
        return re.findall(r'<option value="(\d+)"', (await browser.get(page)).text)

    async def ask(milli: int) -> int:
        return (await browser.post("/sessions/part/resize?project=team-a", data={"gpu_milli": milli})).status_code

    assert (await offered())[-1] != "400"
    await ok(ready.admin.post(f"{V1}/user-policies", json={"name": "few", "max_gpu_milli": 1300}))
    await ok(ready.admin.patch(f"{V1}/users/admin", json={"policy": "few"}))
    assert (await offered())[-1] == "400", "0.2 GPU are left for two containers"
    assert await ask(450) == 409
    await ok(ready.admin.patch(f"{V1}/user-policies/few", json={"max_gpu_milli": 1000}))
    assert (await offered())[-1] == "300", "what it has it may keep"
    await ok(ready.admin.patch(f"{V1}/users/admin", json={"policy": None}))
    await ok(
        ready.admin.patch(
            f"{V1}/projects/team-a",
            json={"period": {"starts_at": "2026-01-01T00:00:00Z", "ends_at": "2026-01-02T00:00:00Z"}},
        )
    )
    assert (await offered())[-1] == "300"
    assert await ask(350) == 409


async def test_who_may_add_no_hour_is_offered_none(ready: Cluster, browser: httpx.AsyncClient) -> None:
    async with await ready.user("mia"), ready.client(**PAGE) as owner:
        await sign_in(owner, "mia")
        change = {"members": ["mia"], "interactive_extension_s": 3599}
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json=change))
        owned = {**body("own", gpu_milli=500), "limit_s": 7200}
        await ok(owner.post(f"{V1}/sessions", json=owned))
        await ready.settle()
        page = "/sessions/own?project=team-a"
        assert "/extend?" not in (await owner.get(page)).text
        assert 'max="8784"' in (await browser.get(page)).text, "an administrator may"
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"interactive_extension_s": 7200}))
        assert 'max="2"' in (await owner.get(page)).text
        answer = await owner.post("/sessions/own/extend?project=team-a", data={"hours": "2"})
        assert answer.status_code == 204
        assert "/extend?" not in (await owner.get(page)).text, "all is added"


async def test_a_running_session_is_resized_restarted_and_ended(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("first", 500)
    await ready.settle()
    page = (await browser.get("/sessions/first?project=team-a")).text
    assert "/resize?" in page
    assert "/extend?" not in page, "no time limit runs"
    resized = await browser.post("/sessions/first/resize?project=team-a", data={"gpu_milli": "250"})
    assert (resized.status_code, resized.headers["hx-trigger"]) == (204, "refresh")
    assert (await ready.session("first"))["resize_milli"] == 250
    assert (await browser.post("/sessions/first/resize?project=team-a", data={"gpu_milli": "1"})).status_code == 422
    assert (await browser.post("/sessions/first/extend?project=team-a", data={"hours": "1"})).status_code == 409
    assert (await browser.post("/sessions/first/restart?project=team-a")).status_code == 204
    await ready.settle()
    assert (await ready.session("first"))["attempt"] == 1
    assert (await browser.post("/sessions/first/delete?project=team-a")).status_code == 204
    await ready.settle()
    assert await ready.states() == {"first": "TERMINATED"}
    assert await names(browser) == []
    assert await names(browser, "?state=TERMINATED") == ["first"]


async def test_a_time_limit_is_put_off_by_hours(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("first", 500, limit_s=3600)
    await ready.settle()
    before = await ready.session("first")
    assert "/extend?" in (await browser.get("/sessions/first?project=team-a")).text
    assert (await browser.post("/sessions/first/extend?project=team-a", data={"hours": "2"})).status_code == 204
    assert (await ready.session("first"))["expires_at"] > before["expires_at"]


async def test_while_places_are_reserved_there_is_said_why_no_time_limit_is_put_off(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    async with await ready.user("mia"), ready.client(**PAGE) as manager:
        await sign_in(manager, "mia")
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"managers": ["mia"]}))
        await wait_behind_limits(ready)
        page = (await manager.get("/sessions/short?project=team-a")).text
        assert "places are reserved on worker1 for a session that waits" in page
        assert "/extend?" not in page
        assert (await manager.post("/sessions/short/extend?project=team-a", data={"hours": "1"})).status_code == 409
        assert "/extend?" in (await browser.get("/sessions/short?project=team-a")).text, "an administrator may"
        await delete(ready, "large")
        assert "/extend?" in (await manager.get("/sessions/short?project=team-a")).text


async def test_how_much_of_a_log_is_shown_is_chosen_and_all_of_it_is_a_file(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    session = await run(ready, "first")
    page = (await browser.get(f"/sessions/{session['id']}/log?project=team-a&lines=1000")).text
    assert re.search(r'lines=1000&amp;rank=0"[^>]* aria-current="true"', page)
    (file,) = re.findall(r'href="(/api/v1/[^"]+)" download="first.log"', page)
    answer = await browser.get(unescape(file), headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert (await browser.get(f"/sessions/{session['id']}/log?project=team-a&lines=5001")).status_code == 422
    assert re.search(rf'href="/sessions/{session["id"]}\?project=team-a">Back to the session', page)
    ready.engine.failure = UnavailableError(Sentence("the agent of {node} failed: {why}", node="worker1", why="full"))
    page = (await browser.get("/sessions/first/log?project=team-a", headers={"Accept-Language": "ko"})).text
    assert "worker1의 에이전트" in page


async def test_the_log_of_each_container_is_chosen_and_how_much_is_kept_is_said(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    session = await run(ready, "first", replicas=2)
    for rank in (0, 1):
        ready.engine.output[f"session-{session['id']}-0-{rank}"] = f"rank {rank} speaks".encode()

    async def shown(query: str = "") -> str:
        return (await browser.get(f"/sessions/first/log?project=team-a{query}")).text

    page = await shown()
    assert "rank 0 speaks" in page
    assert ">as much as is kept, as a file<" in page
    (other,) = re.findall(r'href="([^"]+&amp;lines=200&amp;rank=1)"', page)
    page = (await browser.get(unescape(other))).text
    assert "rank 1 speaks" in page
    assert re.search(r'lines=200&amp;rank=1"[^>]* aria-current="true">container 1<', page)
    assert re.search(r'href="[^"]+/logs\?project=team-a&amp;rank=1" download="first-1.log"', page)
    assert (await browser.get("/sessions/first/log?project=team-a&rank=2")).status_code == 422
    await delete(ready, "first")
    await ready.settle()
    page = await shown("&rank=1")
    assert "rank 1 speaks" in page
    assert ">the last 256 KiB, which are kept, as a file<" in page


async def test_who_looks_after_the_project_sees_which_calls_were_denied_and_others_how_many(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    strict = {"name": "strict", "rules": [{"calls": ["mkdir"]}], "site_wide": True}
    await ok(ready.admin.post(f"{V1}/sandboxes", json=strict))
    async with await ready.user("mia"), ready.client(**PAGE) as member:
        await sign_in(member, "mia")
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["mia"]}))
        await ready.submit("first", 500)
        await ready.settle()
        page = "/sessions/first?project=team-a"
        assert "Denied system calls" not in (await browser.get(page)).text
        session = await ready.session("first")
        assert (await report(ready, denied_call(session, 3, process="<sh>"))).status_code == 204
        seen = (await browser.get(page)).text
        assert "denied 3 system calls" in seen
        assert "<td>&lt;sh&gt;</td><td><code>mkdir</code></td><td>EPERM</td><td>3</td>" in seen
        answer = await member.get(page)
        assert (answer.status_code, "denied 3 system calls" in answer.text) == (200, True)
        assert "mkdir" not in answer.text
        assert "denied-calls" not in answer.text, "what is refused is not asked for"
