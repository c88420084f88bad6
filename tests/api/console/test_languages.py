"""Languages of pages: by account, else by browser; nothing that people read goes past translation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import httpx
import pytest
from sqlalchemy import select, update

from api.resources.logins import throttle
from api.tables.session_events import SessionEvent
from api.tables.sessions import Session
from tests.api.cluster import V1, Cluster, ok
from tests.api.console.conftest import PAGE
from tests.api.console.test_pages import PATHS
from tests.api.endpoints.routes import open_websocket
from tests.api.steps import run

pytestmark = pytest.mark.anyio

SHOWN = re.compile(
    r'\s(?:placeholder|title|aria-label|alt|hx-confirm|data-(?:silent|restored|differ|texts|time|memory|busy|ended|lost))="([^"]*)"'
)
MARKED = re.compile(r"⟦[^⟦⟧]*⟧")
OWN_NAMES = (
    *("Penstock", "English", "GPU", "CPU", "MiB", "GiB", "UTC", "team-a", "python", "worker1", "first", "second"),
    *("admin", "ready", "sleep", "infinity", "Simulated", "example", "site", "https", "nothing-here", "laptop", "psk_"),
    *("local", "mps", "none", "time-slicing", "simulated", "all", "GET", "small", "default"),
    *("worker", "tests", "data", "medium", "medium-gpu", "large", "large-gpu", "research-gpu"),
)
"""What is the same in every language: units, what people have named, and what is typed."""
KOREAN = {"Accept-Language": "ko", "Origin": "https://penstock"}


def unmarked(page: str) -> set[str]:
    """Return the words of a page that nobody translates."""
    page = re.sub(r"<(script|style|title)\b.*?</\1>|<!doctype html>", "", page, flags=re.DOTALL)
    page = re.sub(r"<(\w+)[^>]* (?:lang=\"en\"|translate=\"no\").*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r"<code[^>]*>.*?</code>|<pre[^>]*>.*?</pre>|<time[^>]*>.*?</time>", "", page, flags=re.DOTALL)
    page = re.sub(r'<option value="\w*" lang.*?</option>', "", page)
    found = "\n".join([*SHOWN.findall(page), *re.findall(r">([^<>]+)<", page)])
    while MARKED.search(found):
        found = MARKED.sub("", found)
    return {word for word in re.findall(r"[A-Za-z][\w-]*[A-Za-z]", found) if word not in OWN_NAMES}


@pytest.mark.parametrize("path", [path for path in PATHS if path != "/nothing-here"])
@pytest.mark.usefixtures("marked")
async def test_no_text_of_a_page_goes_past_translation(ready: Cluster, browser: httpx.AsyncClient, path: str) -> None:
    await run(ready, "first")
    await ready.submit("second", 4000, preemptible=False)
    await ready.settle()
    page = (await browser.get(path)).text
    assert "⟦" in page
    assert unmarked(page) == set()


def test_a_text_past_translation_is_found() -> None:
    assert unmarked('<p title="More">⟦Fine ⟦too⟧⟧</p><b>Hello</b>') == {"More", "Hello"}


async def test_a_page_speaks_the_language_of_the_browser_until_the_account_has_one(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    korean = {"Accept-Language": "ko-KR,ko;q=0.9"}
    async with ready.client(**PAGE) as guest:
        assert '<html lang="ko">' in (await guest.get("/login", headers=korean)).text
        assert "ログ" not in (await guest.get("/login")).text
    page = (await browser.get("/", headers=korean)).text
    assert '<html lang="ko">' in page
    assert "내 한도" in page
    answer = await browser.post("/language", data={"language": "th"})
    assert (answer.status_code, answer.headers["hx-refresh"]) == (204, "true")
    assert (await ok(ready.admin.get(f"{V1}/auth/me")))["language"] == "th"
    page = (await browser.get("/", headers=korean)).text
    assert '<html lang="th">' in page
    assert '<option value="th" lang="th" selected>' in page
    assert (await browser.post("/language", data={"language": ""})).status_code == 204
    assert '<html lang="ko">' in (await browser.get("/", headers=korean)).text
    assert (await browser.post("/language", data={"language": "xx"})).status_code == 422
    assert (await ready.admin.patch(f"{V1}/auth/me", json={"language": "xx"})).status_code == 422


async def test_why_a_session_waits_is_kept_by_what_it_is_made_of_and_said_in_the_readers_language(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await run(ready, "first")
    await ready.submit("second", 4000, preemptible=False)
    await ready.settle()
    async with ready.database.reading() as db:
        kept = (await db.scalars(select(Session).where(Session.name == "second"))).one()
        first = (await db.scalars(select(SessionEvent).where(SessionEvent.session_id == kept.id))).one()
    assert kept.reason_parts["values"]
    assert str(kept.why) == kept.reason
    assert first.reason_parts == {"text": "waits for the scheduler", "values": {}}
    english = (await browser.get("/sessions/second?project=team-a")).text
    assert kept.reason in english
    chinese = (await browser.get("/sessions/second?project=team-a", headers={"Accept-Language": "zh"})).text
    assert kept.reason not in chinese
    assert "没有" in chinese or "空闲" in chinese or "配额" in chinese
    assert "等待调度器" in chinese
    assert (await ok(ready.admin.get(f"{V1}/sessions/second?project=team-a")))["reason"] == kept.reason


async def test_addresses_and_methods_that_there_are_not_are_said_in_the_readers_language(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    korean = {"Accept-Language": "ko"}
    for method, path, english, said in (
        ("GET", "/nothing-here", "Not Found", "찾을 수 없습니다"),
        ("PUT", "/sessions", "Method Not Allowed", "허용되지 않는 메서드입니다"),
    ):
        page = (await browser.request(method, path, headers=korean)).text
        assert f"<strong>{said}</strong>" in page
        assert "/docs에서 볼 수 있습니다" in page, "the hint"
        assert f"<strong>{english}</strong>" in (await browser.request(method, path)).text
        told = (await ready.admin.request(method, f"{V1}/sessions/a/b/c", headers=korean)).json()
        assert told["errors"][0]["detail"] == "Not Found", "programs read one language"


async def test_what_quotas_are_warned_of_is_said_in_the_readers_language(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ready.add_project("team-b", 100_000)
    for path in ("/projects", "/projects/team-b"):
        page = (await browser.get(path, headers={"Accept-Language": "ko"})).text
        assert "모든 프로젝트의 쿼터 합계가 GPU" in page, path
        assert "the quotas of all projects" not in page, path
        assert "the quotas of all projects come to" in (await browser.get(path)).text


async def test_a_reason_that_its_parts_do_not_make_is_shown_as_it_stands_on_every_page_and_list(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ready.submit("odd", 4000)
    async with ready.database.transaction() as db:
        for table in (Session, SessionEvent):
            await db.execute(update(table).values(reason="as it stands", reason_parts={"text": "{lost}", "values": {}}))
    chinese = {"Accept-Language": "zh"}
    for path in ("/", "/sessions", "/sessions/odd?project=team-a", "/queue", "/overview"):
        page = await browser.get(path, headers=chinese)
        assert (page.status_code, "as it stands" in page.text) == (200, True), path
    for path in ("/sessions?project=team-a", "/sessions/odd?project=team-a", "/sessions/odd/events?project=team-a"):
        assert "as it stands" in (await ready.admin.get(f"{V1}{path}")).text


async def test_what_is_refused_is_said_in_the_readers_language_on_pages_and_to_their_scripts(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    korean = {"Accept-Language": "ko"}
    script = {**korean, "HX-Request": "true"}
    page = await browser.get("/presets/lost", headers=korean)
    assert (page.status_code, "프리셋 lost이(가) 없습니다" in page.text) == (404, True)
    wrong = await browser.post("/user-policies", data={"name": "students", "max_sessions": "-1"}, headers=script)
    (told,) = wrong.json()["errors"]
    assert (told["pointer"], told["detail"], told["hint"]) == ("/max_sessions", "0보다 작습니다", "0 이상으로 적으세요")
    for status in (204, 409):
        made = await browser.post("/user-policies", data={"name": "students"}, headers=script)
        assert made.status_code == status
    assert made.json()["errors"][0]["detail"] == "사용자 정책 students이(가) 이미 있습니다"
    programs = await ready.admin.get(f"{V1}/presets/lost", headers=korean)
    assert programs.json()["errors"][0]["detail"] == "there is no preset lost", "programs read one language"


async def test_what_is_refused_of_a_group_is_said_in_the_readers_language(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ok(ready.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": "night"}))
    headers = {"Accept-Language": "ko", "HX-Request": "true"}

    async def told(**form: str) -> str:
        answer = await browser.post("/resource-groups/night", data=form, headers=headers)
        assert answer.is_client_error
        return str(answer.json()["errors"][0]["detail"])

    assert await told(add_nodes="worker9") == "노드 worker9이(가) 없습니다"
    await ok(ready.admin.patch(f"{V1}/resource-groups/night", json={"projects": ["team-a"]}))
    assert await told(moved="true", domain="acme") == "team-a은(는) 도메인 acme에 속하지 않습니다"
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"training_group": "night"}))
    assert "team-a" in (refusal := await told(moved="true", domain="acme"))
    assert refusal.startswith("다음 프로젝트는 acme 소속이 아니면서")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("mkdir:", "'mkdir:'은(는) 규칙이 아닙니다"),
        ("socket(0)", "'0'은(는) 인수의 조건이 아닙니다"),
        ("socket(0=x)", "'x'은(는) 숫자가 아닙니다"),
    ],
)
async def test_what_is_no_rule_of_a_sandbox_is_said_in_the_readers_language(
    ready: Cluster, browser: httpx.AsyncClient, rule: str, said: str
) -> None:
    headers = {"Accept-Language": "ko", "HX-Request": "true"}
    answer = await browser.post("/sandboxes", data={"name": "strict", "rules": rule}, headers=headers)
    (told,) = answer.json()["errors"]
    assert (told["pointer"], told["detail"], "write" in told["hint"]) == ("/rules", said, False)


@pytest.mark.parametrize(
    ("form", "field", "said", "advised"),
    [
        ({"name": "First"}, "/name", "이름에는 소문자, 숫자, 하이픈만", "20자 이하로"),
        ({"name": "-first"}, "/name", "하이픈은 처음이나 끝에", "20자 이하로"),
        ({"name": "a" * 21}, "/name", "20자보다 깁니다", "20자 이하로"),
        ({"name": ""}, "/name", "비어 있습니다", "20자 이하로"),
        ({"replicas": "3", "max_replicas": "2"}, "/max_replicas", "컨테이너 수보다 적습니다", "3 이상을"),
        ({"image": "lost"}, "/image", "이미지 lost이(가) 없습니다", "python:3.11 중에서 고르세요"),
        ({"ports": "1, 1"}, "/ports", "같은 포트가 두 번", "값을 고치세요"),
        ({"share": "1", "shares": "20000"}, "/gpu_milli", "GPU 20개는", "16개 이하를"),
        ({"share": "0", "cpu": "999"}, "/cpu_milli", "더 적게 요청하세요", ""),
    ],
)
async def test_what_is_wrong_with_a_new_session_is_said_in_the_readers_language(
    ready: Cluster, browser: httpx.AsyncClient, form: dict[str, str], field: str, said: str, advised: str
) -> None:
    headers = {"Accept-Language": "ko", "HX-Request": "true"}
    fits = {"name": "first", "project": "team-a", "image": "python", "share": "1"}
    (told,) = (await browser.post("/launch", data=fits | form, headers=headers)).json()["errors"]
    place = told.get("pointer") or f"/{told['where']}"
    assert (place, said in told["detail"], advised in told["hint"]) == (field, True, True), told
    assert "ask" not in told["detail"] + told["hint"]


async def test_what_somebody_may_not_do_is_said_in_the_readers_language(ready: Cluster) -> None:
    await run(ready, "first")
    bob = await ready.user("bob")
    for client, method, path, body, said, advised in (
        (
            ready.admin,
            "PATCH",
            "/sessions/first?project=team-a",
            {"gpu_milli": 1},
            "몫은 허용되는 단위보다",
            "GPU 0.05개를",
        ),
        (bob, "POST", "/users", {"name": "eve", "password": "Correct1horse!"}, "사용자 생성 권한이", "관리자에게"),
    ):
        answer = await client.request(method, f"{V1}{path}", json=body, headers=KOREAN)
        (told,) = answer.json()["errors"]
        assert (said in told["detail"], advised in told["hint"]) == (True, True), told


async def test_the_page_to_sign_in_hears_in_the_readers_language_what_is_wrong(ready: Cluster) -> None:
    async def told(headers: Mapping[str, str]) -> tuple[str, str]:
        wrong = {"name": "admin", "password": "nothing"}
        async with ready.client() as guest:
            (said,) = (await guest.post(f"{V1}/auth/login", json=wrong, headers=headers)).json()["errors"]
        return said["detail"], said["hint"]

    assert await told(KOREAN) == (
        "이름 또는 비밀번호가 틀렸습니다",
        "다시 시도하거나 관리자에게 새 비밀번호를 요청하세요",
    )
    assert (await told({"Accept-Language": "ko"}))[0] == "name or password is wrong", "programs read one language"
    for _ in range(throttle.FREE):
        last = await told(KOREAN)
    assert last[0] == "너무 자주 시도했습니다"
    assert last[1].endswith("초 기다린 뒤 올바른 비밀번호로 다시 시도하세요")


async def test_a_terminal_says_in_the_readers_language_why_it_ends(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("second", 4000, starts_at="2100-01-01T00:00:00Z")
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())

    async def told(name: str, headers: Mapping[str, str]) -> str:
        path, query = f"{V1}/sessions/{name}/exec", {"project": "team-a", "command": '["sh"]'}
        sent = await open_websocket(ready.app, path, {"Host": "penstock", **headers}, query)
        return str(json.loads(sent[1]["text"])["reason"])

    page = {**KOREAN, "Cookie": cookies}
    assert await told("lost", page) == "team-a에 세션 lost이(가) 없습니다; 세션 목록을 보세요"
    waits = "세션 second의 상태는 PENDING입니다: {}; RUNNING 상태가 될 때까지 기다리세요"
    assert await told("second", page) == waits.format("2100. 1. 1. 00:00 UTC에 시작")
    key = {"Authorization": ready.admin.headers["authorization"], "Accept-Language": "ko"}
    assert await told("lost", key) == "name: team-a has no session lost. Hint: list the sessions"
