"""Heartbeats that repeat the one before, but for their number: most of all requests, so they take the short way.

Two thousand agents that only live must cost next to nothing. What an agent sent last is remembered once the endpoint
has taken it; the same bytes with a higher number are not checked again, and the answer is that all is as before.
"""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.clock import now
from api.endpoints.access import agent_of_certificate, clock_offset_s
from api.resources.nodes.heartbeats import Heartbeats
from common.audit_protocol import AUDIT_HEAD_HEADER
from common.errors import PenstockError
from common.protocol import HEARTBEAT_PATH

NUMBER = b'"sequence":'
MAX_BYTES = 1 << 20
"""Of a longer heartbeat no copy is kept."""

_Parts = tuple[bytes, bytes]


class Repeats:
    """ASGI middleware before all but what names requests; other requests pass, and who is no agent has nothing read."""

    def __init__(self, app: ASGIApp) -> None:
        """Start with nothing remembered."""
        self._app = app
        self._taken: dict[str, _Parts] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a repeated heartbeat, or let the application do it."""
        if scope["type"] != "http" or scope["path"] != HEARTBEAT_PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        name = _name(connection)
        if not name:
            await self._app(scope, receive, send)
            return
        body, rest = await _body(receive)
        parts, sequence = _split(body)
        heartbeats: Heartbeats = connection.app.state.heartbeats
        at = now()
        offset_s = clock_offset_s(connection, at)
        if rest is None and self._taken.get(name) == parts and heartbeats.repeat(name, sequence, at, offset_s):
            await send(_as_before(heartbeats.audit_head))
            await send({"type": "http.response.body"})
            return
        statuses: list[int] = []

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        await self._app(scope, _replay(body, rest, receive), watched)
        known = heartbeats.latest(name)
        if statuses == [200] and known and known.sequence == sequence and len(body) <= MAX_BYTES:
            self._taken[name] = parts
        else:
            self._taken.pop(name, None)


def _as_before(audit_head: str) -> Message:
    headers = [(AUDIT_HEAD_HEADER.lower().encode(), audit_head.encode())] if audit_head else []
    return {"type": "http.response.start", "status": 204, "headers": headers}


async def _body(receive: Receive) -> tuple[bytes, Message | None]:
    """Return what came of a body; the last message where the client went away before its end, or sends too much."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body), message
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body), None
        if len(body) > MAX_BYTES:
            return bytes(body), {"type": "http.request", "body": b"", "more_body": True}


def _replay(body: bytes, rest: Message | None, receive: Receive) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": rest is not None}, *([rest] if rest else [])]

    async def replay() -> Message:
        return messages.pop(0) if messages else await receive()

    return replay


def _split(body: bytes) -> tuple[_Parts, int]:
    """Return a heartbeat without its number, and the number; 0 for what has none that we could read."""
    before, _, after = body.partition(NUMBER)
    digits = after[:20].lstrip().split(b",")[0]
    number = int(digits) if digits.isdigit() else 0
    return (before, after.partition(b",")[2]), number


def _name(connection: HTTPConnection) -> str:
    try:
        return agent_of_certificate(connection)
    except PenstockError:
        return ""
