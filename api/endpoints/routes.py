"""Routes: who calls is known before a byte of the body is looked at."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from api.endpoints import bodies
from api.endpoints.access import authorize, is_for_agents, is_public
from api.endpoints.auditing import attempted, slow_down
from api.endpoints.bodies import Bound, BoundedRequest
from common.errors import ForbiddenError

_AUTHORIZED = "penstock.authorized"


class Route(APIRoute):
    """Authorizes the caller, then takes a body of what the caller may send.

    FastAPI reads and parses a body before all that an endpoint depends on.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handle, bound = super().get_route_handler(), _bound(self.endpoint)

        async def answer(request: Request) -> Response:
            async with attempted(request, self.endpoint, self.status_code):
                await authorize(request)
                slow_down(request, self.endpoint)
                request.scope[_AUTHORIZED] = True
                return await handle(BoundedRequest(request, bound))

        return answer


Router = partial(APIRouter, route_class=Route)
"""Makes the routers of the API."""


async def authorized(connection: HTTPConnection) -> None:
    """Let nobody pass whom no `Route` has authorized; a dependency of the whole application.

    What has no body, a WebSocket, is authorized here.
    """
    if connection.scope["type"] == "websocket":
        endpoint = connection.scope["endpoint"]
        async with attempted(connection, endpoint):
            await authorize(connection)
            slow_down(connection, endpoint)
    elif _AUTHORIZED not in connection.scope:
        raise ForbiddenError("nobody may call this")


def _bound(endpoint: Callable[..., Any]) -> Bound:
    if is_public(endpoint):
        return bodies.ANYBODY
    return bodies.AGENTS if is_for_agents(endpoint) else bodies.PEOPLE
