"""What the edge is told of a request for an app: who may pass, where to, and what the app gets to see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import httpx
import pytest
from sqlalchemy import update

from api.auth.policy import UserRole
from api.resources.apps import service
from api.tables.sessions import Container, Service
from tests.api.cluster import V1, Cluster, ok, sign_in

pytestmark = pytest.mark.anyio

HOST = {"Host": "site:9443"}


@pytest.fixture
async def owner(cluster: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    """Alice, whose running session `web` offers port 8888."""
    await cluster.add_node()
    await cluster.add_image()
    async with await cluster.user("alice") as alice:
        await cluster.add_project("team-a", 2000, "alice")
        body = {"name": "web", "project": "team-a", "image": "python", "gpu_milli": 500}
        session = await ok(alice.post(f"{V1}/sessions", json=body))
        await cluster.settle()
        async with cluster.database.transaction() as db:
            listens = update(Container).values(ports={"8888": 57123}).returning(Container.session_id)
            session_id = (await db.execute(listens)).scalar_one()
            db.add(Service(session_id=session_id, port=8888, path="web-8888", base_path="team-a/web"))
        assert session["name"] == "web"
        yield alice


async def ask(client: httpx.AsyncClient, uri: str, **headers: str) -> httpx.Response:
    """Ask as the edge does."""
    return await client.get(f"{V1}/apps/authorize", headers={**HOST, "X-Original-URI": uri, **headers})


def meant(answer: httpx.Response) -> int:
    """Return the status that the edge shows."""
    return int(answer.headers["X-Status"]) if answer.status_code == 403 else answer.status_code


async def test_the_owner_is_led_to_the_agent_without_the_prefix(owner: httpx.AsyncClient) -> None:
    answer = await ask(owner, "/web-8888/lab/tree?x=%2F&y")
    [session] = await ok(owner.get(f"{V1}/sessions"))
    [key] = await ok(owner.get(f"{V1}/api-keys"))
    assert answer.status_code == 200
    assert {name: text for name, text in answer.headers.items() if name.startswith("x-upstream")} == {
        "x-upstream": "192.0.2.10:57123",
        "x-upstream-name": "worker1",
        "x-upstream-container": f"session-{session['id']}-0-0",
        "x-upstream-uri": "/lab/tree?x=%2F&y",
        "x-upstream-prefix": "/web-8888",
        "x-upstream-cookie-path": "/web-8888",
        "x-upstream-cookie": "",
        "x-upstream-user": "alice",
        "x-upstream-caller": f"api_keys:{key['id']}",
    }


async def test_an_app_that_knows_its_prefix_sees_it(owner: httpx.AsyncClient) -> None:
    answer = await ask(owner, "/team-a/web/api/kernels?1")
    assert answer.headers["X-Upstream-Uri"] == "/team-a/web/api/kernels?1"
    assert answer.headers["X-Upstream-Prefix"] == ""


INNER = {
    "/web-8888": "/",
    "/web-8888?a=b": "/?a=b",
    "/web-8888/": "/",
    "/web-8888//double": "//double",
    "/%77eb-8888/a%20b": "/a%20b",
    "/web-8888/../x": "/../x",
    "/web-8888/caf\xe9": "/caf\xe9",
}


async def test_what_follows_the_prefix_goes_through_as_it_is(owner: httpx.AsyncClient) -> None:
    for uri, inner in INNER.items():
        headers = httpx.Headers({**HOST, "X-Original-URI": uri}, encoding="latin-1")
        answer = await owner.get(f"{V1}/apps/authorize", headers=headers)
        assert answer.status_code == 200, uri
        assert dict(answer.headers.raw)[b"x-upstream-uri"] == inner.encode("latin-1")


async def test_a_browser_gets_the_slash_that_relative_links_need(owner: httpx.AsyncClient) -> None:
    answer = await ask(owner, "/web-8888?a=b", Accept="text/html,*/*")
    assert (meant(answer), answer.headers["X-Location"]) == (302, "/web-8888/?a=b")


async def test_where_nothing_is_nothing_is_found(owner: httpx.AsyncClient) -> None:
    elsewhere = ["/", "/web-8889/", "/web/", "//web-8888/", "/x/web-8888/", "/%00/", "/web-8888%2F../", "/" + "a" * 300]
    for uri in elsewhere:
        assert meant(await ask(owner, uri)) == 404, uri


async def test_others_do_not_learn_that_there_is_an_app(cluster: Cluster, owner: httpx.AsyncClient) -> None:
    async with await cluster.user("bob") as bob, await cluster.user("eve", UserRole.AUDITOR) as eve:
        await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice", "bob"]}))
        assert meant(await ask(bob, "/web-8888/")) == meant(await ask(bob, "/nothing/")) == 404
        assert meant(await ask(eve, "/web-8888/")) in (403, 404)
    assert (await ask(cluster.admin, "/web-8888/")).status_code == 200


async def test_an_outsider_is_sent_to_the_login_and_back(cluster: Cluster, owner: httpx.AsyncClient) -> None:
    async with cluster.client() as guest:
        answer = await ask(guest, "/web-8888/a?b=c&d")
    assert answer.status_code == 401
    assert answer.headers["X-Location"] == "/login?next=https%3A%2F%2Fsite%3A9443%2Fweb-8888%2Fa%3Fb%3Dc%26d"


async def test_our_cookies_and_only_ours_stay_here(cluster: Cluster, owner: httpx.AsyncClient) -> None:
    async with cluster.client() as browser:
        await sign_in(browser, "alice")
        secret = browser.cookies["__Host-penstock_session"]
        cookies = f"_xsrf=1; __Host-penstock_session={secret}; penstock_session=x; Penstock_Other=y; app=a=b"
        browser.cookies.clear()
        answer = await ask(browser, "/web-8888/", Cookie=cookies)
    assert answer.status_code == 200
    assert answer.headers["X-Upstream-Cookie"] == "_xsrf=1; app=a=b"


async def test_pages_of_other_origins_do_nothing_in_an_app(owner: httpx.AsyncClient) -> None:
    assert (await ask(owner, "/web-8888/", Origin="https://site:9443")).status_code == 200
    for origin in ("https://site", "http://site:9443", "https://evil.example", "null"):
        assert meant(await ask(owner, "/web-8888/", Origin=origin)) == 403, origin


async def test_an_app_that_does_not_run_yet_says_so(cluster: Cluster, owner: httpx.AsyncClient) -> None:
    async with cluster.database.transaction() as db:
        await db.execute(update(Container).values(ports={}))
    assert meant(await ask(owner, "/web-8888/")) == 503


async def test_the_edge_must_name_the_path(owner: httpx.AsyncClient) -> None:
    for headers in ({}, {"X-Original-URI": "web"}, {"X-Original-URI": "/a b"}):
        answer = await owner.get(f"{V1}/apps/authorize", headers=headers)
        assert answer.status_code == 422, headers


async def test_nobodys_own_prefix_takes_a_path_away(cluster: Cluster, owner: httpx.AsyncClient) -> None:
    """A session that gives itself the path of another one as prefix does not get its visitors."""
    await cluster.submit("trap")
    await cluster.settle()
    trap = await cluster.session("trap")
    async with cluster.database.transaction() as db:
        db.add(Service(session_id=UUID(trap["id"]), port=1, path="trap-1", base_path="web-8888"))
    assert (await ask(owner, "/web-8888/")).headers["X-Upstream"] == "192.0.2.10:57123"


async def test_what_was_found_is_believed_for_a_moment(
    cluster: Cluster, owner: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "KEEP_S", 60.0)
    assert (await ask(owner, "/web-8888/")).status_code == 200
    async with cluster.database.transaction() as db:
        await db.execute(update(Container).values(ports={}))
    assert (await ask(owner, "/web-8888/")).status_code == 200, "from memory"
    async with await cluster.user("bob") as bob:
        assert meant(await ask(bob, "/web-8888/")) == 404, "who may pass is asked each time"
    monkeypatch.setattr(service, "KEEP_S", -1.0)
    assert meant(await ask(owner, "/web-8888/")) == 503


async def test_a_refusal_says_which_it_is(owner: httpx.AsyncClient, cluster: Cluster) -> None:
    made = await ok(owner.post(f"{V1}/api-keys", json={"name": "looks", "scope": "read"}))
    async with cluster.client(made["key"]) as reader:
        answer = await ask(reader, "/web-8888/")
    assert meant(answer) == 403
    assert answer.headers["X-Reason"].startswith("a key with the scope read may not ")
    answer = await ask(owner, "/web-8888/", Origin="https://evil.example")
    assert "https://evil.example" in answer.headers["X-Reason"]


async def test_who_may_open_no_app_at_all_is_told_that_it_is_not_theirs(
    owner: httpx.AsyncClient, cluster: Cluster
) -> None:
    assert (await ask(owner, "/web-8888/")).status_code == 200
    async with await cluster.user("audrey", UserRole.AUDITOR) as auditor:
        assert meant(await ask(auditor, "/web-8888/")) == 404
