"""Routes of the application, and calls of them in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount
from starlette.types import ASGIApp

from tests.api.cluster import Cluster

NOWHERE = {"project": "team-a", "command": json.dumps(["sh"])}


@dataclass(frozen=True)
class Route:
    """A route of the application, and whether it is a WebSocket."""

    method: str
    path: str

    @property
    def filled(self) -> str:
        """The path to something that does not exist."""
        return (
            re.sub(r"{\w+_id}", "00000000-0000-4000-8000-000000000000", self.path)
            .replace("{tag}", "1")
            .replace("{day}", "20000101")
            .replace("{name}", "nothing-here")
        )

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def routes_of(app: FastAPI) -> list[Route]:
    contexts = [c for c in iter_route_contexts(app.routes) if not isinstance(c.original_route, Mount)]
    return [Route(method, str(c.path)) for c in contexts for method in sorted(c.methods or {"WEBSOCKET"})]


async def status_of(cluster: Cluster, client: httpx.AsyncClient, route: Route) -> int:
    """Return how a call is answered that names nothing that exists; a WebSocket that is let in counts as 101."""
    if route.method != "WEBSOCKET":
        body: Any = {} if route.method in ("POST", "PUT", "PATCH") else None
        return (await client.request(route.method, route.filled, json=body)).status_code
    sent = await open_websocket(cluster.app, route.filled, dict(client.headers))
    return 101 if sent[0]["type"] == "websocket.accept" else int(sent[0]["status"])


async def open_websocket(
    app: ASGIApp, path: str, headers: Mapping[str, str], query: Mapping[str, str] = NOWHERE
) -> list[dict[str, Any]]:
    """Open a WebSocket, leave at once, and return what the application sends."""
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "scheme": "wss",
        "path": path,
        "root_path": "",
        "query_string": urlencode(query).encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "subprotocols": [],
        "state": {},
        "extensions": {"websocket.http.response": {}},
    }
    incoming = iter([{"type": "websocket.connect"}])
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return next(incoming, {"type": "websocket.disconnect", "code": 1000})

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await app(scope, receive, send)
    return sent
