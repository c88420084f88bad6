"""Who has lost the right to a session: what is open ends within moments, and what waits never begins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from api import notices
from api.engine.base import AgentAddress
from api.resources.sessions import relay, streams
from common.app_protocol import APP_CALLERS_PATH, AppCallersReply
from common.protocol import ContainerStatus
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.api.resources.sessions.test_terminals import talk, typed
from tests.api.steps import body

pytestmark = pytest.mark.anyio

Lose = Callable[[Cluster, httpx.AsyncClient], Awaitable[Any]]


async def is_removed(cluster: Cluster, _alice: httpx.AsyncClient) -> None:
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"members": ["bob"]}))


async def is_disabled(cluster: Cluster, _alice: httpx.AsyncClient) -> None:
    await ok(cluster.admin.patch(f"{V1}/users/alice", json={"disabled": True}))


async def loses_the_key(cluster: Cluster, alice: httpx.AsyncClient) -> None:
    for key in await ok(alice.get(f"{V1}/api-keys")):
        await ok(cluster.admin.delete(f"{V1}/users/alice/api-keys/{key['id']}"))


async def sees_it_no_more(cluster: Cluster, _alice: httpx.AsyncClient) -> None:
    """Its owner, an administrator here, keeps the session to itself."""
    params = {"project": "team-a"}
    await ok(cluster.admin.patch(f"{V1}/sessions/demo", params=params, json={"access": "private"}))


WAYS = [is_removed, is_disabled, loses_the_key]


@pytest.fixture
async def alice(ready: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    """A member of team-a beside bob."""
    async with await ready.user("alice") as client, await ready.user("bob"):
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice", "bob"]}))
        yield client


@pytest.fixture(autouse=True)
async def heard(ready: Cluster) -> AsyncIterator[None]:
    """Notices come, as beside a served application."""
    hearing = asyncio.create_task(ready.app.state.notices.run())
    async with asyncio.timeout(60):
        await ready.app.state.notices.heard.wait()
    yield
    hearing.cancel()
    with suppress(asyncio.CancelledError):
        await hearing


async def silent(_agent: AgentAddress, _id: str, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
    """A log of one line, which goes on for ever for who follows it."""
    yield b"epoch 1\n"
    if follow:
        await asyncio.Event().wait()


@asynccontextmanager
async def following(
    cluster: Cluster, client: httpx.AsyncClient, name: str = "demo"
) -> AsyncIterator[tuple[asyncio.Task[None], list[MutableMapping[str, Any]]]]:
    """Follow a session's log; gives what follows it, which ends with the answer, and what was answered so far."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": "GET",
        "path": f"{V1}/sessions/{name}/logs",
        "query_string": b"project=team-a&follow=true",
        "headers": [(b"authorization", client.headers["authorization"].encode())],
    }
    task = asyncio.ensure_future(cluster.app(scope, receive, send))
    try:
        yield task, sent
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- what it waits for tells nobody
            await asyncio.sleep(0.01)


def said(sent: list[MutableMapping[str, Any]]) -> bytes:
    return b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("lose", WAYS)
async def test_a_followed_log_breaks_off(
    ready: Cluster, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, lose: Lose
) -> None:
    await ok(alice.post(f"{V1}/sessions", json=body()))
    await ready.settle()
    monkeypatch.setattr(ready.engine, "logs", silent)
    async with following(ready, alice) as (log, sent), following(ready, ready.admin) as (other, _):
        await until(lambda: said(sent))
        await lose(ready, alice)
        async with asyncio.timeout(60):
            await log
        assert said(sent) == b"epoch 1\n"
        assert sent[-1]["more_body"], "nothing says that this was all"
        await asyncio.sleep(0.1)
        assert not other.done()


async def test_a_followed_log_breaks_off_where_the_session_is_private_now(
    ready: Cluster, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready.submit("demo")
    await ready.settle()
    monkeypatch.setattr(ready.engine, "logs", silent)
    async with following(ready, alice) as (log, sent):
        await until(lambda: said(sent))
        await sees_it_no_more(ready, alice)
        async with asyncio.timeout(60):
            await log


@pytest.mark.parametrize("lose", WAYS)
async def test_a_terminal_ends_with_a_reason(ready: Cluster, alice: httpx.AsyncClient, lose: Lose) -> None:
    await ok(alice.post(f"{V1}/sessions", json=body()))
    await ready.settle()
    async with asyncio.timeout(60):
        sent = await talk(ready, [typed(b"ls")], client=alice, then=lambda: lose(ready, alice))
    assert json.loads(sent[-2]["text"])["type"] == "error"
    assert (sent[-1]["type"], sent[-1]["code"]) == ("websocket.close", 1008)


@pytest.mark.parametrize("lose", [is_removed, is_disabled])
async def test_what_waits_does_not_begin(ready: Cluster, alice: httpx.AsyncClient, lose: Lose) -> None:
    for name, gpus in (("runs", 4000), ("waits", 1000)):
        await ok(alice.post(f"{V1}/sessions", json=body(name, gpu_milli=gpus)))
        await ready.settle()
    await ready.submit("other")
    await lose(ready, alice)
    await ready.settle()
    assert await ready.states() == {"runs": "RUNNING", "waits": "FAILED", "other": "PENDING"}
    assert (await ready.session("waits"))["reason"] == "alice may not submit to team-a any more"
    await ok(ready.admin.delete(f"{V1}/sessions/runs", params={"project": "team-a"}))
    await ready.settle()
    assert await ready.states() == {"runs": "TERMINATED", "waits": "FAILED", "other": "RUNNING"}


async def test_what_is_on_its_way_does_not_begin_either(ready: Cluster, alice: httpx.AsyncClient) -> None:
    ready.engine.first_status = ContainerStatus.PULLING
    await ok(alice.post(f"{V1}/sessions", json=body()))
    await ready.settle()
    assert await ready.states() == {"demo": "PREPARING"}
    await is_removed(ready, alice)
    await ready.settle()
    assert await ready.states() == {"demo": "FAILED"}
    assert not ready.engine.containers


async def test_an_administrator_who_is_none_any_more_has_nothing_begin_elsewhere(ready: Cluster) -> None:
    await ready.submit("runs", 4000)
    async with await ready.user("carol") as carol:
        await ok(ready.admin.patch(f"{V1}/users/carol", json={"role": "admin"}))
        await ok(carol.post(f"{V1}/sessions", json=body("waits")))
        await ready.settle()
        assert (await ready.states())["waits"] == "PENDING"
        await ok(ready.admin.patch(f"{V1}/users/carol", json={"role": "member"}))
        await ready.settle()
    assert await ready.states() == {"runs": "RUNNING", "waits": "FAILED"}


async def callers_who_leave(cluster: Cluster, *callers: str) -> list[str]:
    """Ask as the agent of the node where the session is."""
    session = await cluster.session("demo")
    told = [{"container_id": cluster.container(session)[1], "caller": caller} for caller in callers]
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}) as agent:
        answer = await ok(agent.post(APP_CALLERS_PATH, json={"name": "worker1", "callers": told}))
    return [each.caller for each in AppCallersReply.model_validate(answer).leave]


@pytest.mark.parametrize("lose", WAYS)
async def test_an_agent_learns_whose_connections_end(ready: Cluster, alice: httpx.AsyncClient, lose: Lose) -> None:
    await ok(alice.post(f"{V1}/sessions", json=body(ports=[8888])))
    await ready.settle()
    ready.change_container(await ready.session("demo"), ports={8888: 57123})
    await ready.heartbeat()
    await ready.settle()

    async def opens(client: httpx.AsyncClient) -> httpx.Response:
        headers = {"X-Original-URI": "/demo-8888/", "Host": "site:9443"}
        return await client.get(f"{V1}/apps/authorize", headers=headers)

    hers, admins = [(await opens(client)).headers["X-Upstream-Caller"] for client in (alice, ready.admin)]
    assert await callers_who_leave(ready, hers, admins) == []
    assert await callers_who_leave(ready, "", "logins:x", hers.replace("api_keys", "logins")) == [
        "",
        "logins:x",
        hers.replace("api_keys", "logins"),
    ]
    await lose(ready, alice)
    assert await callers_who_leave(ready, hers, admins) == [hers]
    assert (await opens(alice)).status_code != 200


async def test_a_login_that_ends_takes_its_connections_along(ready: Cluster, alice: httpx.AsyncClient) -> None:
    await ok(alice.post(f"{V1}/sessions", json=body()))
    await ready.settle()
    async with ready.client() as browser:
        await sign_in(browser, "alice")
        [login] = [each for each in await ok(browser.get(f"{V1}/auth/logins")) if each["current"]]
        caller = f"logins:{login['id']}"
        assert await callers_who_leave(ready, caller) == []
        await ok(browser.post(f"{V1}/auth/logout"))
    assert await callers_who_leave(ready, caller) == [caller]


async def test_one_person_follows_so_many_logs_and_no_more(ready: Cluster, alice: httpx.AsyncClient) -> None:
    await ready.submit("runs", 4000)
    await ready.submit("demo")
    await ready.settle()
    ready.app.state.streams._most = 2
    params: dict[str, str | bool] = {"project": "team-a", "follow": True}
    async with following(ready, alice), following(ready, alice):
        await until(lambda: sum(ready.app.state.streams._open.values()) == 2)
        told = await refused(alice.get(f"{V1}/sessions/demo/logs", params=params), 429)
        assert "2 followed logs" in told["reason"]
        async with following(ready, ready.admin):
            await until(lambda: sum(ready.app.state.streams._open.values()) == 3)
    await until(lambda: not ready.app.state.streams._open)


async def nothing_is_to_be_told(cluster: Cluster) -> None:
    """Wait until the notices of all that was written so far have come: they come in order."""
    with cluster.app.state.notices.about("the last") as told:
        async with cluster.database.transaction() as db:
            await db.execute(text("SELECT pg_notify('penstock', 'the last')"))
        async with asyncio.timeout(60):
            await told.wait()


async def test_who_follows_what_waits_costs_nothing(
    ready: Cluster, alice: httpx.AsyncClient, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No statement while nothing happens, no connection of the pool, and the log begins when the session does."""
    waiting = set[float]()
    wait = notices.wait

    async def noted(news: asyncio.Event, timeout_s: float) -> None:
        waiting.add(timeout_s)
        await wait(news, timeout_s)
        waiting.discard(timeout_s)

    monkeypatch.setattr(notices, "wait", noted)
    monkeypatch.setattr(relay, "LOOK_AGAIN_S", 600.0)
    monkeypatch.setattr(streams, "RECHECK_S", 500.0)
    runs = await ready.submit("runs", 4000)
    await ready.settle()
    await ready.submit("demo")
    await ready.settle()
    await nothing_is_to_be_told(ready)
    async with following(ready, alice) as (_, sent):
        await until(lambda: waiting == {500.0, 600.0})
        statements.clear()
        await asyncio.sleep(1)
        assert statements == []
        assert ready.database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        monkeypatch.setattr(ready.engine, "logs", silent)
        await ok(ready.admin.delete(f"{V1}/sessions/{runs['name']}", params={"project": "team-a"}))
        await ready.settle()
        await until(lambda: said(sent) == b"epoch 1\n")
