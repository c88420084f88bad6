"""The endpoint that the edge asks, for every request, whether it may pass to an app and where that is.

nginx's auth_request understands 200, 401 and 403 and nothing else, so what is really meant stands in headers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.clock import now
from api.endpoints import auditing
from api.endpoints.access import Agent, KnownCallerOf, SettingsOf, action, check_speaks_for, for_agents
from api.endpoints.routes import Route, Router
from api.endpoints.transactions import DatabaseOf, Reading
from api.resources.apps import callers, service
from api.resources.apps.service import AppIndex
from api.resources.logins import callers as known_callers
from common.app_protocol import APP_CALLERS_PATH, AppCallersReply, AppCallersReport
from common.errors import ForbiddenError, NotFoundError, UnauthenticatedError, UnavailableError

ORIGINAL_URI = "X-Original-URI"
MAX_REASON = 500
"""Characters of a reason, which may quote what a client sent."""


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
            except ForbiddenError as error:
                (problem,) = error.problems
                # who may open no app at all learns as little as who may not open this one
                return _no(403, reason=f"{problem.reason}: {problem.hint}") if problem.where else _no(404)

        return answer


async def index_of(connection: HTTPConnection) -> AppIndex:
    """Return the application's index of apps."""
    index: AppIndex = connection.app.state.apps
    return index


router = Router(prefix="/apps", tags=["apps"], route_class=EdgeRoute)
agents = Router(tags=["agents"])


@router.get("/authorize", include_in_schema=False)
@action(Action.APP_OPEN, for_the_edge=True)
async def authorize(
    request: Request,
    known: KnownCallerOf,
    db: Reading,
    index: Annotated[AppIndex, Depends(index_of)],
    uri: Annotated[str, Header(alias=ORIGINAL_URI, pattern=r"^/[^\x00-\x20]*$", max_length=16_384)],
) -> Response:
    """Tell the edge where the app of a request is and what it shall see of the request."""
    headers, caller = request.headers, known.identity
    auditing.about(request, f"apps/{service.name_in(uri)}")
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
            "X-Upstream-Caller": known.name,
        }
    )


@agents.post(APP_CALLERS_PATH, response_model_exclude_defaults=True)
@for_agents
async def review_app_callers(
    message: AppCallersReport, agent: Agent, database: DatabaseOf, settings: SettingsOf
) -> AppCallersReply:
    """Tell an agent which of the open connections to apps have to end, as who has them may open the app no longer."""
    check_speaks_for(agent, message.name)
    at = now()
    async with database.reading() as db:
        leave, staying = await callers.leavers(db, message.callers, at, settings.login_idle_s)
    if stale := [known for known in staying if not known.is_noted(at)]:
        async with database.transaction() as db:
            for known in stale:
                await known_callers.note_use(db, known, at)
    return AppCallersReply(leave=leave, interval_s=settings.heartbeat_interval_s)


def _no(meant: int, location: str = "", reason: str = "") -> Response:
    told = reason[:MAX_REASON].encode("ascii", "replace").decode()
    return Response(status_code=403, headers={"X-Status": str(meant), "X-Location": location, "X-Reason": told})
