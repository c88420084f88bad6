"""Caching: no answer is kept by anybody on the way unless it says itself for whom and for how long."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NAME, _NO_STORE = b"cache-control", b"no-store"
_PUBLIC = ("/static/",)
"""Paths of files that are the same for everybody."""


class NoStore:
    """ASGI middleware that forbids to keep what says nothing of it: errors, too."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the application, with the header where it has none."""
        if scope["type"] != "http" or scope["path"].startswith(_PUBLIC):
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if not any(name.lower() == _NAME for name, _ in headers):
                    message = {**message, "headers": [*headers, (_NAME, _NO_STORE)]}
            await send(message)

        await self._app(scope, receive, marked)
