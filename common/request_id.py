"""Request ids: one name for a request, in its answer, in the lines that it logs, and in the calls that it leads to."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from structlog.contextvars import bind_contextvars, get_contextvars

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
        name = (self._trusts(scope) and _given(scope)) or secrets.token_hex(16).encode()
        # never unbound: who answers for an application that has failed stands before this and still wants it
        bind_contextvars(request_id=name.decode())

        async def named(message: Message) -> None:
            if message["type"] in _WITH_HEADERS:
                message = {**message, "headers": [*message.get("headers", ()), (_KEY, name)]}
            await send(message)

        await self._app(scope, receive, named)


def _given(scope: Scope) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == _KEY and _GIVEN.fullmatch(value)), None)
