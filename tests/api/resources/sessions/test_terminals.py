"""Terminals: what passes between a user's WebSocket and a session's container."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

from api.engine.base import UnreachableError
from api.resources.sessions import streams
from tests.api.cluster import V1, Cluster, ok

pytestmark = pytest.mark.anyio


async def talk(
    cluster: Cluster,
    frames: list[dict[str, Any]],
    *,
    command: str = '["sh"]',
    client: Any = None,
    project: str = "team-a",
    then: Callable[[], Awaitable[Any]] | None = None,
    name: str = "demo",
) -> list[dict[str, Any]]:
    """Open a terminal in a session, send frames, and return what the application sends.

    With `then` the user stays when that has been done.
    """
    query = urlencode({"project": project, "command": command})
    key = (client or cluster.admin).headers.get("authorization", "")
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "scheme": "wss",
        "path": f"{V1}/sessions/{name}/exec",
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"authorization", key.encode())],
        "subprotocols": [],
        "state": {},
        "extensions": {"websocket.http.response": {}},
    }
    incoming = iter([{"type": "websocket.connect"}, *frames])
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        frame = next(incoming, None)
        if frame is None and then is not None:
            await then()
            await asyncio.Event().wait()
        return frame or {"type": "websocket.disconnect", "code": 1000}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await cluster.app(scope, receive, send)
    return sent


@asynccontextmanager
async def running_session(cluster: Cluster) -> AsyncIterator[None]:
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project()
    await cluster.submit("demo")
    await cluster.settle()
    yield


def typed(data: bytes) -> dict[str, Any]:
    return {"type": "websocket.receive", "bytes": data}


def error_of(sent: list[dict[str, Any]]) -> str:
    assert sent[0]["type"] == "websocket.accept", sent
    frame = json.loads(sent[1]["text"])
    assert frame["type"] == "error"
    assert sent[-1]["type"] == "websocket.close"
    return str(frame["reason"])


async def test_bytes_go_both_ways_until_the_command_ends(cluster: Cluster) -> None:
    async with running_session(cluster):
        sent = await talk(cluster, [typed(b"\x00\xff echo"), typed(b"exit\n"), typed(b"late")])
    frames = [message.get("bytes") or message.get("text") for message in sent if message["type"] == "websocket.send"]
    assert frames[0] == b"\x00\xff echo"
    assert json.loads(str(frames[-1]))["type"] == "exit"
    assert sent[-1]["type"] == "websocket.close"


async def test_a_user_who_leaves_ends_the_terminal(cluster: Cluster) -> None:
    async with running_session(cluster):
        sent = await talk(cluster, [])
    assert sent[0]["type"] == "websocket.accept"


async def test_a_waiting_session_has_no_terminal(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    await cluster.submit("demo")
    assert "session demo is PENDING: waits for the scheduler" in error_of(await talk(cluster, []))


@pytest.mark.parametrize("command", ["sh", "[]", "{}", "[1]", '["\\ud800"]', '["a\\u0000"]', "[" * 5000])
async def test_a_bad_command(cluster: Cluster, command: str) -> None:
    async with running_session(cluster):
        assert "not a JSON list of words" in error_of(await talk(cluster, [], command=command))


async def test_an_agent_that_is_away(cluster: Cluster) -> None:
    async with running_session(cluster):
        cluster.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
        assert "does not answer" in error_of(await talk(cluster, []))


async def test_terminals_are_for_the_owner(cluster: Cluster) -> None:
    async with running_session(cluster), await cluster.user("alice") as alice:
        assert "no project team-a" in error_of(await talk(cluster, [], client=alice))
        await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        id_ = (await cluster.session("demo"))["id"]
        told = error_of(await talk(cluster, [], name=id_, client=alice))
        assert told == "session demo belongs to admin. Hint: ask admin"
    assert not [call for call in cluster.engine.calls if call[0] == "terminal"]


async def test_who_loses_the_right_loses_the_terminal(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RECHECK_S", 0.01)
    async with await cluster.user("alice") as alice:
        await cluster.add_node()
        await cluster.add_image()
        await cluster.add_project("team-a", 1000, "alice")
        request = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500}
        await ok(alice.post(f"{V1}/sessions", json=request))
        await cluster.settle()

        async def remove() -> None:
            await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"members": []}))

        async with asyncio.timeout(60):
            sent = await talk(cluster, [typed(b"ls")], client=alice, then=remove)
    assert "no project team-a" in json.loads(sent[-2]["text"])["reason"]
    assert sent[-1]["type"] == "websocket.close"


async def test_an_outsider_is_refused_before_the_terminal_opens(cluster: Cluster) -> None:
    async with cluster.client() as outsider:
        sent = await talk(cluster, [], client=outsider)
    assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 401)


async def test_a_bad_address_is_explained(cluster: Cluster) -> None:
    sent = await talk(cluster, [], project="Team A")
    assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 422)
    assert json.loads(sent[1]["body"])["errors"][0]["parameter"] == "project"
