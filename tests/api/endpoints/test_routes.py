"""Every route, called by everybody: the table here says who is let in. A route without a row fails.

How far somebody reaches from there is the matter of the tests of each resource.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount

from api.auth.policy import UserRole
from api.endpoints.access import check_routes
from api.resources.users import service as users
from api.resources.users.schemas import UserRequest
from common.errors import PenstockError
from common.protocol import DENIED_CALLS_PATH, HEARTBEAT_PATH, METRICS_PATH
from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

CAST = ("admin", "domain-admin", "auditor", "manager", "member", "outsider", "anonymous")

ALL = frozenset(CAST)
KNOWN = ALL - {"anonymous"}
WORKERS = KNOWN - {"auditor"}
READERS = frozenset({"admin", "domain-admin", "auditor"})
ADMINS = frozenset({"admin", "domain-admin"})
SITE = frozenset({"admin"})
SITE_READERS = frozenset({"admin", "auditor"})
NOBODY: frozenset[str] = frozenset()
"""Not even an administrator: agents alone, by their certificates."""

EXPECTED = {
    "GET /": ALL,
    "GET /docs": ALL,
    "GET /health": ALL,
    "GET /login": ALL,
    "GET /openapi.json": ALL,
    f"POST {HEARTBEAT_PATH}": NOBODY,
    f"POST {METRICS_PATH}": NOBODY,
    f"POST {DENIED_CALLS_PATH}": NOBODY,
    f"GET {V1}/health": ALL,
    f"GET {V1}/settings": KNOWN,
    f"POST {V1}/auth/login": ALL,
    f"POST {V1}/auth/logout": KNOWN,
    f"GET {V1}/auth/me": KNOWN,
    f"GET {V1}/auth/csrf": KNOWN,
    f"POST {V1}/auth/password": KNOWN,
    f"GET {V1}/auth/logins": KNOWN,
    f"DELETE {V1}/auth/logins": KNOWN,
    f"DELETE {V1}/auth/logins/{{login_id}}": KNOWN,
    f"GET {V1}/api-keys": KNOWN,
    f"POST {V1}/api-keys": KNOWN,
    f"DELETE {V1}/api-keys/{{key_id}}": KNOWN,
    f"GET {V1}/users": READERS,
    f"POST {V1}/users": ADMINS,
    f"GET {V1}/users/{{name}}": READERS,
    f"PATCH {V1}/users/{{name}}": ADMINS,
    f"DELETE {V1}/users/{{name}}": ADMINS,
    f"PUT {V1}/users/{{name}}/password": ADMINS,
    f"GET {V1}/users/{{name}}/api-keys": READERS,
    f"DELETE {V1}/users/{{name}}/api-keys/{{key_id}}": ADMINS,
    f"DELETE {V1}/users/{{name}}/logins": ADMINS,
    f"GET {V1}/user-policies": READERS,
    f"POST {V1}/user-policies": SITE,
    f"GET {V1}/user-policies/{{name}}": READERS,
    f"PATCH {V1}/user-policies/{{name}}": SITE,
    f"DELETE {V1}/user-policies/{{name}}": SITE,
    f"GET {V1}/domains": READERS,
    f"POST {V1}/domains": SITE,
    f"PATCH {V1}/domains/{{name}}": SITE,
    f"DELETE {V1}/domains/{{name}}": SITE,
    f"GET {V1}/accounting": KNOWN,
    f"GET {V1}/projects": KNOWN,
    f"POST {V1}/projects": ADMINS,
    f"GET {V1}/projects/{{name}}": KNOWN,
    f"PATCH {V1}/projects/{{name}}": ADMINS | {"manager"},
    f"DELETE {V1}/projects/{{name}}": ADMINS,
    f"GET {V1}/resource-groups": KNOWN,
    f"POST {V1}/resource-groups": SITE,
    f"GET {V1}/resource-groups/{{name}}": KNOWN,
    f"PATCH {V1}/resource-groups/{{name}}": ADMINS,
    f"DELETE {V1}/resource-groups/{{name}}": SITE,
    f"GET {V1}/images": KNOWN,
    f"POST {V1}/images": WORKERS,
    f"POST {V1}/images/{{name}}:{{tag}}/check": WORKERS,
    f"DELETE {V1}/images/{{name}}:{{tag}}": WORKERS,
    f"GET {V1}/presets": KNOWN,
    f"POST {V1}/presets": SITE,
    f"GET {V1}/presets/{{name}}": KNOWN,
    f"PATCH {V1}/presets/{{name}}": SITE,
    f"DELETE {V1}/presets/{{name}}": SITE,
    f"GET {V1}/sandboxes": KNOWN,
    f"POST {V1}/sandboxes": SITE,
    f"GET {V1}/sandboxes/{{name}}": KNOWN,
    f"PATCH {V1}/sandboxes/{{name}}": SITE,
    f"DELETE {V1}/sandboxes/{{name}}": SITE,
    f"GET {V1}/nodes": KNOWN,
    f"GET {V1}/nodes/{{name}}": KNOWN,
    f"PATCH {V1}/nodes/{{name}}/mode": ADMINS,
    f"DELETE {V1}/nodes/{{name}}": SITE,
    f"DELETE {V1}/nodes/{{name}}/unknown-containers": ADMINS,
    f"GET {V1}/sessions": KNOWN,
    f"POST {V1}/sessions": WORKERS,
    f"GET {V1}/sessions/{{name}}": KNOWN,
    f"DELETE {V1}/sessions/{{name}}": WORKERS,
    f"GET {V1}/sessions/{{name}}/logs": KNOWN,
    f"GET {V1}/sessions/{{name}}/metrics": KNOWN,
    f"GET {V1}/sessions/{{name}}/denied-calls": READERS | {"manager"},
    f"WEBSOCKET {V1}/sessions/{{name}}/exec": WORKERS,
    f"POST {V1}/sessions/batch": WORKERS,
    f"PATCH {V1}/sessions/{{name}}": WORKERS,
    f"POST {V1}/sessions/{{name}}/extend": WORKERS,
    f"GET {V1}/scheduler/queue": SITE_READERS,
    f"GET {V1}/scheduler/cycle": SITE_READERS,
    f"GET {V1}/apps/authorize": WORKERS,
}


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
            .replace("{name}", "nothing-here")
        )

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def routes_of(app: FastAPI) -> list[Route]:
    contexts = [c for c in iter_route_contexts(app.routes) if not isinstance(c.original_route, Mount)]
    return [Route(method, str(c.path)) for c in contexts for method in sorted(c.methods or {"WEBSOCKET"})]


@asynccontextmanager
async def everybody(cluster: Cluster) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """Give a client of each part of the cast."""
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    async with AsyncExitStack() as stack:
        cast = {
            "auditor": await cluster.user("audrey", UserRole.AUDITOR),
            "manager": await cluster.user("mona"),
            "member": await cluster.user("mike"),
            "outsider": await cluster.user("sam"),
            "anonymous": cluster.client(),
        }
        async with cluster.database.transaction() as db:
            await users.create(db, UserRequest(name="dora", password=PASSWORD, role=UserRole.ADMIN, domain="acme"))
        cast["domain-admin"] = cluster.client()
        await sign_in(cast["domain-admin"], "dora")
        key = (await ok(cast["domain-admin"].post(f"{V1}/api-keys", json={"name": "tests"})))["key"]
        cast["domain-admin"] = cluster.client(key)
        for client in cast.values():
            await stack.enter_async_context(client)
        await cluster.add_project("team-a", 1000, "mike")
        await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"managers": ["mona"]}))
        yield {**cast, "admin": cluster.admin}


async def status_of(cluster: Cluster, client: httpx.AsyncClient, route: Route) -> int:
    """Return how a call is answered; a WebSocket that is let in counts as 101."""
    if route.method != "WEBSOCKET":
        body: Any = {} if route.method in ("POST", "PUT", "PATCH") else None
        return (await client.request(route.method, route.filled, json=body)).status_code
    sent = await open_websocket(cluster.app, route.filled, dict(client.headers))
    return 101 if sent[0]["type"] == "websocket.accept" else int(sent[0]["status"])


async def open_websocket(app: FastAPI, path: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    """Open a WebSocket, leave at once, and return what the application sends."""
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "scheme": "wss",
        "path": path,
        "root_path": "",
        "query_string": b"project=team-a&command=%5B%22sh%22%5D",
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


async def test_every_route_lets_those_in_who_are_named_for_it_and_nobody_else(cluster: Cluster) -> None:
    routes = routes_of(cluster.app)
    assert {str(route) for route in routes} == set(EXPECTED), "each route has a row here, and each row a route"
    wrong = []
    async with everybody(cluster) as clients:
        for route in routes:
            for who in CAST:
                status = await status_of(cluster, clients[who], route)
                expected = who in EXPECTED[str(route)]
                refused = 401 if who == "anonymous" or EXPECTED[str(route)] is NOBODY else 403
                # What is let in finds nothing there, or says that the empty body lacks something.
                if (status in (401, 403)) == expected or (not expected and status != refused) or status >= 500:
                    wrong.append(f"{who}: {route} -> {status}")
    assert wrong == []


async def test_the_application_does_not_start_with_a_route_that_nobody_has_decided_on(cluster: Cluster) -> None:
    @cluster.app.get("/forgotten")
    async def forgotten() -> str:
        return "secrets"

    with pytest.raises(PenstockError, match="/forgotten"):
        check_routes(cluster.app)
    assert (await cluster.admin.get("/forgotten")).status_code == 403, "and even then it is refused"
