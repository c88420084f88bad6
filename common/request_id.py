"""Request ids: one name for a request, in its answer, in the lines that it logs, and in the calls that it leads to."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from structlog.contextvars import bind_contextvars, get_contextvars

from common.errors import Problem
from common.problem import MEDIA_TYPE, document, item

HEADER = "X-Request-Id"

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_KEY = HEADER.lower().encode()
_GIVEN = re.compile(rb"[0-9A-Za-z-]{1,64}")
_WITH_HEADERS = ("http.response.start", "websocket.accept", "websocket.http.response.start")


def current() -> str:
    """Return the id of the request that is being answered; empty where none is."""
    return str(get_contextvars().get("request_id", ""))


def headers() -> dict[str, str]:
    """Return the header that names the current request; none where there is no request."""
    return {HEADER: given} if (given := current()) else {}


def begin() -> None:
    """Give what this task does of itself an id, as if somebody had asked for it."""
    bind_contextvars(request_id=_new())


def resume(name: str) -> None:
    """Go on with what a request asked for earlier, under its id; empty where that is not known."""
    if name:
        bind_contextvars(request_id=name)


class RequestIds:
    """ASGI middleware that gives each request its id: the caller's where `trusts` says so, else one of its own."""

    def __init__(self, app: App, trusts: Callable[[Scope], bool]) -> None:
        """Stand before an application."""
        self._app = app
        self._trusts = trusts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the application, with the id as a header."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        name = (self._trusts(scope) and _given(scope)) or _new().encode()
        # never unbound: who answers for an application that has failed stands before this and still wants it
        bind_contextvars(request_id=name.decode())

        opened = False

        async def named(message: Message) -> None:
            nonlocal opened
            if message["type"] == "websocket.close" and not opened:
                await _refuse(message, named)
                return
            opened = opened or message["type"] == "websocket.accept"
            if message["type"] in _WITH_HEADERS:
                message = {**message, "headers": [*message.get("headers", ()), (_KEY, name)]}
            await send(message)

        await self._app(scope, receive, named)


async def _refuse(close: Message, send: Send) -> None:
    """Say with an answer that a WebSocket is not opened; that of the server to one closed at once names nothing."""
    reason = close.get("reason") or "there is no such WebSocket, or it is not for this caller"
    body = json.dumps(document(403, [item(Problem("", reason, ""))], current())).encode()
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "websocket.http.response.start", "status": 403, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def _new() -> str:
    return secrets.token_hex(16)


def _given(scope: Scope) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == _KEY and _GIVEN.fullmatch(value)), None)
