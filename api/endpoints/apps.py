"""The endpoint that the edge asks, for every request, whether it may pass to an app and where that is.

nginx's auth_request understands 200, 401 and 403 and nothing else, so what is really meant stands in headers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.endpoints.access import Caller, action
from api.endpoints.routes import Route, Router
from api.endpoints.transactions import Reading
from api.resources.apps import service
from api.resources.apps.service import AppIndex
from common.errors import ForbiddenError, NotFoundError, UnauthenticatedError, UnavailableError

ORIGINAL_URI = "X-Original-URI"


class EdgeRoute(Route):
    """Says no in the words that the edge understands."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except UnauthenticatedError:
                host, uri = request.headers.get("host", ""), request.headers.get(ORIGINAL_URI, "/")
                return Response(status_code=401, headers={"X-Location": service.login_path(host, uri)})
            except NotFoundError:
                return _no(404)
            except UnavailableError:
                return _no(503)
            except ForbiddenError:
                return _no(403)

        return answer


async def index_of(connection: HTTPConnection) -> AppIndex:
    """Return the application's index of apps."""
    index: AppIndex = connection.app.state.apps
    return index


router = Router(prefix="/apps", tags=["apps"], route_class=EdgeRoute)


@router.get("/authorize", include_in_schema=False)
@action(Action.APP_OPEN, for_the_edge=True)
async def authorize(
    request: Request,
    caller: Caller,
    db: Reading,
    index: Annotated[AppIndex, Depends(index_of)],
    uri: Annotated[str, Header(alias=ORIGINAL_URI, pattern=r"^/[^\x00-\x20]*$", max_length=16_384)],
) -> Response:
    """Tell the edge where the app of a request is and what it shall see of the request."""
    headers = request.headers
    service.check_origin(headers.get("origin"), headers.get("host", ""))
    app = await index.find(db, uri)
    service.check(app, caller)
    if service.lacks_slash(app, uri) and "text/html" in headers.get("accept", ""):
        _, mark, query = uri.partition("?")
        return _no(302, f"{app.prefix}/{mark}{query}")
    return Response(
        headers={
            "X-Upstream": app.upstream,
            "X-Upstream-Name": app.node,
            "X-Upstream-Container": app.container,
            "X-Upstream-Uri": service.inner_uri(app, uri),
            "X-Upstream-Prefix": app.prefix if app.stripped else "",
            "X-Upstream-Cookie-Path": app.prefix,
            "X-Upstream-Cookie": service.app_cookies(headers.get("cookie", "")),
            "X-Upstream-User": caller.name,
        }
    )


def _no(meant: int, location: str = "") -> Response:
    return Response(status_code=403, headers={"X-Status": str(meant), "X-Location": location})
