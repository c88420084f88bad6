"""Request ids: each request has one, and nobody but who is trusted chooses it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from common import request_id
from common.request_id import HEADER, Message, Receive, RequestIds, Scope, Send

pytestmark = pytest.mark.anyio


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Log a line, and answer with what stands in the calls to others."""
    structlog.get_logger().info("asked")
    headers = [(b"x-told", request_id.headers().get(HEADER, "").encode())]
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body"})
    elif scope["type"] == "websocket":
        await send({"type": "websocket.accept", "headers": headers})


async def ask(kind: str = "http", *, given: bytes | None = None, trusted: bool = True) -> tuple[list[Message], Any]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    scope = {"type": kind, "headers": [(b"x-request-id", given)] if given else []}
    with capture_logs(processors=[merge_contextvars]) as lines:
        await RequestIds(application, trusts=lambda _: trusted)(scope, receive, send)
    return sent, lines


async def name_of(**how: Any) -> str:
    sent, [line] = await ask(**how)
    headers = dict(sent[0]["headers"])
    name = headers[b"x-request-id"].decode()
    assert (line["request_id"], headers[b"x-told"].decode()) == (name, name)
    return str(name)


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_each_request_has_a_new_name_in_answer_log_and_calls(kind: str) -> None:
    first, second = [await name_of(kind=kind) for _ in range(2)]
    assert first != second
    assert len(first) == 32


async def test_the_name_that_a_trusted_caller_gives_is_kept() -> None:
    assert await name_of(given=b"9f0c-a1") == "9f0c-a1"
    assert await name_of(given=b"9f0c-a1", trusted=False) != "9f0c-a1"


@pytest.mark.parametrize("given", [b"a b", b"a\n", b"x" * 65, b'a"b', b"\xff"])
async def test_what_would_not_be_one_word_in_a_log_is_not_kept(given: bytes) -> None:
    assert len(await name_of(given=given)) == 32


async def test_what_is_no_request_passes() -> None:
    sent, [line] = await ask("lifespan")
    assert sent == []
    assert line["event"] == "asked"


async def test_a_websocket_that_is_closed_unopened_is_refused_under_its_name() -> None:
    """The server would answer 403 and nothing else; one that was open before ends as it did."""

    async def refuse(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "websocket.close", "code": 1008, "reason": "not for you"})

    async def end(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 1000})

    async def sent_by(refusing: Any) -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            raise AssertionError

        await RequestIds(refusing, trusts=lambda _: True)({"type": "websocket", "headers": []}, receive, send)
        return sent

    start, body = await sent_by(refuse)
    told = json.loads(body["body"])
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 403)
    assert dict(start["headers"])[b"x-request-id"].decode() == told["request_id"] != ""
    assert told["detail"] == "not for you."
    assert [message["type"] for message in await sent_by(end)] == ["websocket.accept", "websocket.close"]
